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

// Health is the answer of the health check.
type Health struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}
