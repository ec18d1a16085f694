package enginesim

// Find is find for prompts of Qwen3.
func Find(text string) Conversation { return find(text, "<tool_response>") }
