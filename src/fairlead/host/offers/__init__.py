"""What servers offer besides tools: resources, prompts, completions, tasks, skills."""
