package view

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
)

// A Server shows a View to browsers on this machine.
//
// A page of another site can send requests to the address of the server, but gets no data: the first
// part of each path is a random token that it cannot know. The Host header must be the address of the
// server, so requests for a domain that resolves to 127.0.0.1 are refused.
type Server struct {
	View   *View
	Follow bool // read new samples when the page requests them

	token string
	host  string // the address, such as 127.0.0.1:40123
}

// URL returns the address of the page. It is valid after Listen.
func (s *Server) URL() string { return "http://" + s.host + "/" + s.token + "/" }

// Listen opens a free port on 127.0.0.1.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, exit.With(exit.Unusable, err)
	}
	s.token, s.host = rand.Text(), listener.Addr().String()
	return listener, nil
}

// grace is the time that requests in progress get when the server stops.
const grace = time.Second

// Serve reads the run and answers requests until ctx is done. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		err := s.View.Refresh(ctx)
		if err == nil {
			<-ctx.Done()
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // requests that take longer end with the program
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return g.Wait()
}

// Handler answers the requests of the page.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /api/overview", func(w http.ResponseWriter, r *http.Request) {
		if o, err := s.View.overview(r.Context(), s.Follow); err != nil {
			fail(w, err)
		} else {
			answer(w, o)
		}
	})
	mux.HandleFunc("GET /api/samples", s.samples)
	mux.HandleFunc("GET /api/sample/{n}", s.sample)
	mux.HandleFunc("GET /api/search", s.search)
	return s.guard(mux)
}

// guard refuses requests without the token or for another host.
func (s *Server) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(s.host)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", web.Policy(true)+"; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.Host != s.host && r.Host != "localhost:"+port {
			http.Error(w, "this server answers only requests for "+s.host, http.StatusMisdirectedRequest)
			return
		}
		token, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
			http.Error(w, "the address lacks the token: use the URL that rollout view printed", http.StatusForbidden)
			return
		}
		in := r.Clone(r.Context())
		in.URL.Path, in.URL.RawPath = "/"+rest, ""
		next.ServeHTTP(w, in)
	})
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := web.Page{Title: s.View.Name(), Live: true, Text: "This page needs JavaScript. rollout report prints the report in a terminal.", Data: func(w io.Writer) error {
		return json.NewEncoder(w).Encode(map[string]bool{"live": true, "follow": s.Follow})
	}}
	_ = web.Write(w, page) // the browser is gone
}

func (s *Server) samples(w http.ResponseWriter, r *http.Request) {
	v := s.View
	if err := v.read(r.Context(), s.Follow); err != nil {
		fail(w, err)
		return
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if r.FormValue("since") == strconv.FormatInt(v.revision, 10) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	answer(w, v.columns(nil))
}

func (s *Server) sample(w http.ResponseWriter, r *http.Request) {
	if err := s.View.read(r.Context(), false); err != nil {
		fail(w, err)
		return
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		n = -1
	}
	of, err := s.View.sample(n)
	switch {
	case err != nil:
		fail(w, err)
	case of == nil:
		http.Error(w, "there is no sample "+strconv.Quote(r.PathValue("n")), http.StatusNotFound)
	default:
		answer(w, of)
	}
}

func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	if err := s.View.read(r.Context(), false); err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flusher := json.NewEncoder(w), http.NewResponseController(w)
	err := s.View.search(r.Context(), r.FormValue("q"), func(h hit) error {
		if err := out.Encode(h); err != nil {
			return err
		}
		return flusher.Flush()
	})
	if err != nil && r.Context().Err() == nil {
		_ = out.Encode(map[string]string{"error": err.Error()})
	}
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the browser is gone
}

func fail(w http.ResponseWriter, err error) {
	text := err.Error()
	if hint := exit.HintOf(err); hint != "" {
		text = fmt.Sprintf("%s (%s)", text, hint)
	}
	http.Error(w, text, http.StatusInternalServerError)
}
