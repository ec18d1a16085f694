package letta

// A Model is a model that the server offers: an LLMConfig with more fields.
type Model struct {
	Handle            string  `json:"handle"`
	Name              string  `json:"name"`
	Model             string  `json:"model"`
	ModelType         string  `json:"model_type,omitempty"`
	ProviderType      string  `json:"provider_type,omitempty"`
	ProviderName      string  `json:"provider_name,omitempty"`
	ModelEndpoint     *string `json:"model_endpoint"`
	ModelEndpointType string  `json:"model_endpoint_type,omitempty"`
	ContextWindow     int64   `json:"context_window,omitempty"`
	MaxContextWindow  int64   `json:"max_context_window,omitempty"`
}

// A Provider is a source of models. Its API key is never kept.
type Provider struct {
	ID               string  `json:"id"`
	Name             string  `json:"name"`
	ProviderType     string  `json:"provider_type"`
	ProviderCategory *string `json:"provider_category"`
	BaseURL          *string `json:"base_url"`
}

// Health is the answer of the health check.
type Health struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}

// A ProviderCreate creates a model provider for an engine without an API key.
type ProviderCreate struct {
	Name         string `json:"name"`
	ProviderType string `json:"provider_type"` // for example sglang
	// BaseURL is the address of the engine, ending in /v1: the server uses it unchanged for every
	// request except /generate.
	BaseURL string `json:"base_url"`
}
