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
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/collector/session"
)

// Sessions keeps the sessions that a Proxy serves. FromStore returns the Sessions of a store. The
// methods are safe for concurrent use. Their errors wrap the errors of package store.
type Sessions interface {
	// Begin begins a session and returns its key.
	Begin(h session.Head) (session.Key, error)
	// Open returns the number of sessions that have begun and are not sealed.
	Open() int
	// Known returns nil if the key opens a session, even if the session is sealed.
	Known(key session.Key) error
	// Admit begins a call of a session. If the session is sealed before Admission.Done, Sessions can
	// call cancel with the reason.
	Admit(key session.Key, cancel func(error)) (Admission, error)
	// End seals a session and returns the complete End. If wait is true, End waits for the calls in
	// flight, otherwise it cancels them.
	End(ctx context.Context, key session.Key, e session.End, wait bool) (session.End, error)
}

// An Admission is a call of a session that is in flight. Only one goroutine at a time can use it.
type Admission interface {
	// Number is the number of the call in the session, from 1.
	Number() int
	// Add stores the call with the messages and the tools of its request, as the JSON text in the
	// request. tools is nil if there are none. Add is called at most once. The arguments are valid
	// until Add returns. When Add returns nil, the call survives a crash of the process.
	Add(c *session.Call, messages []json.RawMessage, tools json.RawMessage) error
	// Done ends the call, even if Add has not been called.
	Done()
}

// prefix is the path under which sessions are served.
const prefix = "/r"

// A target is the session and the path to which a request belongs.
type target struct {
	key   session.Key
	path  string // without the prefix and the key
	named bool   // whether the key is in the path
}

// targetOf returns the target of a request. It returns false if the request does not belong to a
// session.
func (p *Proxy) targetOf(r *http.Request) (target, bool) {
	if p.cfg.Sessions == nil {
		return target{}, false
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, prefix+"/"); ok && rest != "" {
		key, path, _ := strings.Cut(rest, "/")
		return target{session.Key(key), "/" + path, true}, true
	}
	for _, given := range credentials(r) {
		key := session.Key(given)
		if isKey(key) && p.cfg.Sessions.Known(key) == nil {
			return target{key, r.URL.Path, false}, true
		}
	}
	return target{}, false
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

// isKey reports whether key has the form of a key. Other credentials are not looked up.
func isKey(key session.Key) bool {
	return len(key) == keyBytes && !strings.ContainsFunc(string(key), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

var keyBytes = len(session.NewKey())

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

// withoutToken removes the tap's token from a request that is forwarded.
func (p *Proxy) withoutToken(r *http.Request) {
	for _, name := range [...]string{"Authorization", "X-Api-Key"} {
		if p.cfg.Token != "" && strings.Contains(r.Header.Get(name), p.cfg.Token) {
			r.Header.Del(name)
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

// serveSession serves a request that belongs to a session.
func (p *Proxy) serveSession(w http.ResponseWriter, r *http.Request, t target) {
	ending := t.named && t.path == "/end"
	if !p.enter(ending) {
		p.count(func(s *Stats) { s.Refused++ })
		w.Header().Set("Connection", "close")
		errDraining.send(w)
		return
	}
	defer p.leave()
	if err := p.cfg.Sessions.Known(t.key); err != nil {
		p.refused(err).send(w)
		return
	}
	path := strings.TrimRight(t.path, "/")
	post := r.Method == http.MethodPost
	switch {
	case ending && post:
		p.endSession(w, r, t.key)
	case post && strings.HasSuffix(path, "/chat/completions"):
		p.chat(w, r, t.key)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		p.sessionPage(w, r, path)
	default:
		(&refusal{http.StatusNotFound, "not_found", "a session serves POST …/chat/completions, GET …/models and POST " + prefix + "/KEY/end; configure the client for OpenAI's Chat Completions API"}).send(w)
	}
}

// flood bounds the calls of one session that are open at the same time.
type flood struct {
	mu   sync.Mutex
	open map[session.Key]int
}

func (f *flood) enter(key session.Key, most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[session.Key]int{}
	}
	if f.open[key] >= most {
		return false
	}
	f.open[key]++
	return true
}

func (f *flood) leave(key session.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[key]--; f.open[key] == 0 {
		delete(f.open, key)
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
