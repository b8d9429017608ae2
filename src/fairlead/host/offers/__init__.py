"""Offers of servers besides tools: resources, prompts, completion, tasks and skills."""
