package letta

// Marshal is json.Marshal without the escapes that only HTML needs.
func Marshal(v any) ([]byte, error) { return marshalText(v) }
