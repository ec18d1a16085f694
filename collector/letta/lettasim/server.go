package lettasim

import (
	"net/http"
	"sync"
	"time"
)

// A Server is a simulated Letta server: an [http.Handler] with state.
type Server struct {
	cfg     Config
	mu      sync.Mutex
	stats   Stats
	answers []Answer
}

// New makes a server. It starts no goroutine and listens nowhere.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg.withDefaults()}, nil
}

// HTTPServer returns an http.Server for s with the keep-alive time of the real
// one, 5 s.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{Handler: s, IdleTimeout: 5 * time.Second, ReadHeaderTimeout: time.Minute}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {}
