package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// prefix is the path under which sessions are served.
const prefix = "/r"

// A target is the session and the path to which a request belongs.
type target struct {
	key     session.Key
	session *store.Session
	err     error  // why there is no session
	path    string // without the prefix and the key
	named   bool   // whether the key is in the path
}

// ending reports whether the request ends the session.
func (t *target) ending() bool { return t.named && t.path == "/end" }

// targetOf returns the target of a request. It returns nil if the request does not belong to a
// session.
func (p *Proxy) targetOf(r *http.Request) *target {
	if p.cfg.Sessions == nil {
		return nil
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, prefix+"/"); ok && rest != "" {
		key, path, _ := strings.Cut(rest, "/")
		x, err := p.cfg.Sessions.Session(session.Key(key))
		return &target{session.Key(key), x, err, "/" + path, true}
	}
	for _, given := range credentials(r) {
		if x, err := p.cfg.Sessions.Session(session.Key(given)); err == nil {
			return &target{session.Key(given), x, nil, r.URL.Path, false}
		}
	}
	return nil
}

// credentials returns the values that a client sends as its API key.
func credentials(r *http.Request) (given []string) {
	for _, v := range r.Header["Authorization"] {
		if kind, key, ok := strings.Cut(v, " "); ok && strings.EqualFold(kind, "Bearer") {
			given = append(given, strings.TrimSpace(key))
		}
	}
	return append(given, r.Header["X-Api-Key"]...)
}

// allowed reports whether a request that does not belong to a session has the token.
func (p *Proxy) allowed(r *http.Request) bool {
	if p.cfg.Token == "" {
		return true
	}
	want := sha256.Sum256([]byte(p.cfg.Token))
	ok := 0
	for _, given := range credentials(r) {
		got := sha256.Sum256([]byte(given))
		ok |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return ok == 1
}

// removeSecrets removes the headers that contain one of the secrets. An empty secret is ignored.
func removeSecrets(h http.Header, secrets ...string) {
	for name, values := range h {
		all := strings.Join(values, "\n")
		if slices.ContainsFunc(secrets, func(s string) bool { return s != "" && strings.Contains(all, s) }) {
			delete(h, name)
		}
	}
}

// A refusal is an error that a client of a session receives.
type refusal struct {
	status int
	code   string // a word that programs can test
	why    string
}

func (e *refusal) Error() string { return e.why }

// text returns the error in the form of OpenAI's API.
func (e *refusal) text() []byte {
	code := string(quoted(e.code))
	return []byte(`{"error":{"message":` + string(quoted("rollout tap: "+e.why)) + `,"type":` + code + `,"code":` + code + `}}`)
}

func (e *refusal) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch e.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(append(e.text(), '\n')) // an error means that the client disconnected
}

var (
	errToken      = &refusal{http.StatusUnauthorized, "unauthorized", "this path needs the tap's token, sent as Authorization: Bearer TOKEN"}
	errUnknownKey = &refusal{http.StatusUnauthorized, "unknown_key", "the key in the URL does not open a session; begin one with POST /r"}
	errSealed     = &refusal{http.StatusGone, "after_seal", "the session is sealed and accepts no more calls"}
	errCanceled   = &refusal{http.StatusGone, "after_seal", "the session was sealed while this call was running"}
	errDraining   = &refusal{http.StatusServiceUnavailable, "draining", "the tap is draining and accepts no new requests"}
	errMemory     = &refusal{http.StatusServiceUnavailable, "busy", "the bodies of other calls fill the tap's memory; retry the call"}
	errIncomplete = &refusal{http.StatusBadRequest, "incomplete", "incomplete request body"}
)

// refused returns the answer to a client whose request the store refused.
func refused(err error) *refusal {
	switch {
	case errors.Is(err, store.ErrUnknown):
		return errUnknownKey
	case errors.Is(err, store.ErrSealed):
		return errSealed
	case errors.Is(err, store.ErrConflict):
		return &refusal{http.StatusConflict, "conflict", "the session has already been ended with a different reward, metadata or final text"}
	case errors.Is(err, store.ErrTooLarge):
		return &refusal{http.StatusRequestEntityTooLarge, "too_large", err.Error()}
	case errors.Is(err, store.ErrClosed):
		return errDraining
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable, "canceled", "the request was canceled before the session was sealed; repeat it"}
	}
	return &refusal{http.StatusInsufficientStorage, "not_recorded", "the session cannot be recorded: " + err.Error()}
}

// serveSession serves a request that belongs to a session.
func (p *Proxy) serveSession(w http.ResponseWriter, r *http.Request, t *target) *refusal {
	if t.err != nil {
		return refused(t.err)
	}
	path := strings.TrimRight(t.path, "/")
	post := r.Method == http.MethodPost
	switch {
	case t.ending() && post:
		return p.endSession(w, r, t.session)
	case post && strings.HasSuffix(path, "/chat/completions"):
		return p.chat(w, r, t)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return p.sessionPage(w, r, path)
	}
	return &refusal{http.StatusNotFound, "not_found", "a session serves POST …/chat/completions, GET …/models and POST " + prefix + "/KEY/end; configure the client for OpenAI's Chat Completions API"}
}

// enterCall counts a call of a session as open, unless too many calls are open. A call is open before
// the session admits it, while its body arrives.
func (p *Proxy) enterCall(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[id] >= p.cfg.MaxOpenCalls {
		return false
	}
	p.calls[id]++
	return true
}

func (p *Proxy) leaveCall(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[id]--; p.calls[id] == 0 {
		delete(p.calls, id)
	}
}

// decode decodes the body of a request about a session into v. An empty body leaves v unchanged.
func (p *Proxy) decode(w http.ResponseWriter, r *http.Request, v any) *refusal {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, p.cfg.BodyBytes))
	d.DisallowUnknownFields()
	switch err := d.Decode(v); err {
	case nil:
		if d.More() {
			return &refusal{http.StatusBadRequest, "bad_request", "unexpected data after the JSON body"}
		}
	case io.EOF: // no body
	default:
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge(large.Limit)
		}
		return &refusal{http.StatusBadRequest, "bad_request", fmt.Sprintf("the body is not valid: %v", err)}
	}
	return nil
}

func tooLarge(limit int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the request body is larger than %d bytes", limit)}
}
