package storetest

import (
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// A Fault answers a request instead of the server, or spoils the server's answer.
type Fault func(w http.ResponseWriter, r *http.Request, server http.Handler)

// Answer returns a fault that answers with an S3 error, such as 503 SlowDown or 400 ExpiredToken. The
// server does not receive the request.
func Answer(status int, code string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, status, code) }
}

// Drop closes the connection. The server does not receive the request.
func Drop(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// Lose lets the server handle the request, and loses its answer.
func Lose(_ http.ResponseWriter, r *http.Request, server http.Handler) {
	server.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Hang lets the server handle the request, and then sends nothing until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request, server http.Handler) {
	server.ServeHTTP(httptest.NewRecorder(), r)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Silence sends nothing until the client gives up. The server does not receive the request.
func Silence(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body) // only after the body does the context show that the client has gone
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Truncate sends half of the answer's body.
func Truncate(w http.ResponseWriter, r *http.Request, server http.Handler) {
	answer := record(r, server)
	body := answer.Body.Bytes()
	send(w, answer, body[:len(body)/2])
	panic(http.ErrAbortHandler)
}

// Slow sends the answer in 4 parts, with pauses of 10 ms.
func Slow(w http.ResponseWriter, r *http.Request, server http.Handler) {
	answer := record(r, server)
	body := answer.Body.Bytes()
	for i := range 4 {
		part := body[len(body)*i/4 : len(body)*(i+1)/4]
		if i == 0 {
			send(w, answer, part)
		} else if _, err := w.Write(part); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // an error shows at the next write
		time.Sleep(10 * time.Millisecond)
	}
}

// Stale returns a fault that answers a list as the server would have answered the first list with the
// same URL. All other requests are answered as usual.
func Stale() Fault {
	var mu sync.Mutex
	old := map[string]*httptest.ResponseRecorder{}
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if !r.URL.Query().Has("list-type") {
			server.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if old[r.URL.String()] == nil {
			old[r.URL.String()] = record(r, server)
		}
		answer := old[r.URL.String()]
		send(w, answer, answer.Body.Bytes())
	}
}

func record(r *http.Request, server http.Handler) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, r)
	return answer
}

// send sends a recorded answer with only a part of its body.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder, part []byte) {
	maps.Copy(w.Header(), answer.Header())
	if w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(part) // the client has gone
}

// A Proxy stands before a server and spoils requests.
type Proxy struct {
	Server http.Handler
	mu     sync.Mutex
	plan   func(*http.Request) Fault
}

// Forward returns a handler that sends requests to a server at a URL.
func Forward(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the host is part of the signature
	}}
}

// Plan sets a function that returns the fault of each request, or nil. The proxy calls it for one
// request at a time.
func (p *Proxy) Plan(plan func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	var fault Fault
	if p.plan != nil {
		fault = p.plan(r)
	}
	p.mu.Unlock()
	if fault == nil {
		p.Server.ServeHTTP(w, r)
		return
	}
	fault(w, r, p.Server)
}

// Random returns a plan that spoils a share of the requests, each with one of the faults.
func Random(seed uint64, share float64, faults ...Fault) func(*http.Request) Fault {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(*http.Request) Fault {
		if rng.Float64() >= share {
			return nil
		}
		return faults[rng.IntN(len(faults))]
	}
}

// First returns a plan that spoils the first n requests that use a method.
func First(n int, method string, fault Fault) func(*http.Request) Fault {
	return func(r *http.Request) Fault {
		if r.Method != method || n == 0 {
			return nil
		}
		n--
		return fault
	}
}
