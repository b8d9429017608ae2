"""What servers offer besides tools: resources, prompts, completion, tasks and skills."""
