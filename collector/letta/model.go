package letta

// A Model is a model that the server offers. The server's answer is an LLMConfig
// with more names.
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

// A Health is the server's word that it lives.
type Health struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}

// A ProviderCreate makes a provider of models by an engine that asks for no API key.
type ProviderCreate struct {
	Name         string `json:"name"`
	ProviderType string `json:"provider_type"` // such as sglang
	// BaseURL of the engine, with /v1 at its end: the server takes it as it is for every
	// request but /generate.
	BaseURL string `json:"base_url"`
}
