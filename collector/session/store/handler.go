package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap/taphttp"
)

// listPath is the path of the list of sealed sessions. The package comment describes the requests.
const listPath = "/tap/sessions"

type listing struct {
	Version  int     `json:"version"`
	Sessions []Entry `json:"sessions"`
}

// Handler returns a handler that serves the sealed sessions to other machines, under /tap/sessions.
// It does not check who sends a request: the caller must guard it. A request can wait up to 30 s for
// a sealed session. The wait ends early if the request's context ends or the store is closed. No
// request modifies the store.
func (s *Store) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+listPath, s.serveList)
	mux.HandleFunc("GET "+listPath+"/{id}", s.serveSession)
	return mux
}

func (s *Store) serveList(w http.ResponseWriter, r *http.Request) {
	after := r.FormValue("after")
	wait, err := taphttp.Wait(r)
	if err == nil && after != "" && !isName(after) {
		err = fmt.Errorf("after: %q is not the name of a sealed session", after)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		_ = s.Wait(ctx, after) // the list shows the result
	}
	entries, err := s.Sealed(after)
	if err != nil {
		http.Error(w, "cannot read the folder of sessions", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(listing{Version, entries}) // an error means that the client disconnected
}

func (s *Store) serveSession(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !isID(id) {
		http.Error(w, fmt.Sprintf("%q is not the id of a session", id), http.StatusBadRequest)
		return
	}
	var f *os.File
	var size int64
	err := ErrUnknown
	if name, ok := s.sealedName(id); ok {
		f, size, err = openFile(s.sealedPath(name), id)
	}
	switch {
	case errors.Is(err, ErrUnknown):
		http.Error(w, "no sealed session has this id", http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, "cannot read the session", http.StatusInternalServerError)
		return
	}
	defer func() { _ = f.Close() }() // read only
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, _ = io.CopyN(w, f, size) // if the file is too short, net/http closes the connection
}
