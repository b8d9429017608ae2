"""A small model loop: a model carries out a task with the tools of a host.

```python
async with Host.open() as host:
    model = ChatModel(provider="openai", name="gpt-5", api_key=key)
    async with run_task(host.tools, model, "What changed in this repository today?") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                print(event.text, end="")
```

`run` has the loop and its system prompts, `events` what it yields, `provider` the interface that `openai` and
`anthropic` implement, `api` the HTTP client, and `model_choice` the choice of a model.
"""
