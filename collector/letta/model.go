package letta

// A Model is a model that the server offers.
type Model struct {
	Handle            string `json:"handle"`
	Name              string `json:"name"`
	Model             string `json:"model"`
	ModelEndpointType string `json:"model_endpoint_type,omitempty"`
	ContextWindow     int64  `json:"context_window,omitempty"`
}

// Health is the answer to the health check.
type Health struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}
