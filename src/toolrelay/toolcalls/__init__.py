"""Tool calling for models that print their calls as text or make them carelessly: prompts, sessions, checks, retries."""
