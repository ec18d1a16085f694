package proxy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// prefix is the path under which sessions are served.
const prefix = "/r"

// A target is the session and the path to which a request belongs.
type target struct {
	session *store.Session
	err     error  // why there is no session
	path    string // clean, without the prefix and the key
	named   bool   // whether the key is in the path
}

// ending reports whether the request ends the session.
func (t *target) ending() bool { return t.named && t.path == "/end" }

// targetOf returns the target of a request. It returns nil if the request does not contain a key.
func (p *Proxy) targetOf(r *http.Request) *target {
	if p.cfg.Sessions == nil {
		return nil
	}
	path := clean(r.URL.Path)
	if rest, ok := strings.CutPrefix(path, prefix+"/"); ok {
		key, path, _ := strings.Cut(rest, "/")
		x, err := p.cfg.Sessions.Session(session.Key(key))
		return &target{session: x, err: err, path: "/" + path, named: true}
	}
	var t *target
	for _, given := range credentials(r) {
		if !strings.HasPrefix(given, session.KeyPrefix) {
			continue // of the engine, or the token
		}
		x, err := p.cfg.Sessions.Session(session.Key(given))
		if t = (&target{session: x, err: err, path: path}); err == nil {
			return t
		}
	}
	if t == nil && (session.KeyPattern.MatchString(path) || session.KeyPattern.MatchString(r.URL.RawQuery)) {
		t = &target{err: errMisplacedKey}
	}
	return t
}

// clean returns a path without empty parts and without slashes at its end. Some clients join URLs
// with two slashes.
func clean(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return strings.TrimSuffix(path, "/")
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

// removeSecrets removes the headers that contain a key or the token.
func (p *Proxy) removeSecrets(h http.Header) {
	token := p.cfg.Token
	for name, values := range h {
		if slices.ContainsFunc(values, func(v string) bool {
			return token != "" && strings.Contains(v, token) || session.KeyPattern.MatchString(v)
		}) {
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

// text returns the error in the form of a dialect, or of OpenAI's Chat Completions API.
func (e *refusal) text(form translate.Dialect) []byte {
	if form != nil {
		return form.Error(e.translated())
	}
	code := string(quoted(e.code))
	return []byte(`{"error":{"message":` + string(quoted("rollout tap: "+e.why)) + `,"type":` + code + `,"code":` + code + `}}`)
}

func (e *refusal) translated() *translate.Error {
	return &translate.Error{Status: e.status, Code: e.code, Message: "rollout tap: " + e.why}
}

// refusedTime is how long the body of a refused request can take to arrive.
const refusedTime = 5 * time.Second

func (e *refusal) send(w http.ResponseWriter, form translate.Dialect) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch e.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	// Before the server sends the answer, it reads the rest of the request body if that is short.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
	w.WriteHeader(e.status)
	_, _ = w.Write(append(e.text(form), '\n')) // an error means that the client disconnected
}

var (
	errToken      = &refusal{http.StatusUnauthorized, "unauthorized", "this path needs the tap's token, sent as Authorization: Bearer TOKEN"}
	errUnknownKey = &refusal{http.StatusUnauthorized, "unknown_key", "the key does not open a session; begin one with POST /r"}
	// A key in a query, for example, would reach the engine, and often a log.
	errMisplacedKey = &refusal{http.StatusUnauthorized, "misplaced_key", "send the key in the path, as in /r/KEY/v1, or as the API key"}

	errNotServed = &refusal{http.StatusNotFound, "not_found", "a session serves POST …/chat/completions, …/responses and …/messages, GET …/models, and POST " + prefix + "/KEY/end"}

	errSealed     = &refusal{http.StatusGone, "after_seal", "the session is sealed and accepts no more calls"}
	errCanceled   = &refusal{http.StatusGone, "after_seal", "the session was sealed while this call was running"}
	errDraining   = &refusal{http.StatusServiceUnavailable, "draining", "the tap is draining and accepts no new requests"}
	errMemory     = &refusal{http.StatusServiceUnavailable, "busy", "the bodies of other calls fill the tap's memory; retry the call"}
	errIncomplete = &refusal{http.StatusBadRequest, "incomplete", "incomplete request body"}
)

// refused returns the answer to a client whose request the store refused.
func refused(err error) *refusal {
	bad, known := errors.AsType[*refusal](err)
	switch {
	case known:
		return bad
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
	}
	return &refusal{http.StatusInsufficientStorage, "not_recorded", "the session cannot be recorded: " + err.Error()}
}

// serveSession serves a request that belongs to a session.
func (p *Proxy) serveSession(w http.ResponseWriter, r *http.Request, t *target) *refusal {
	if t.err != nil {
		return refused(t.err)
	}
	path, post := t.path, r.Method == http.MethodPost
	calls, _ := apiOf(path)
	switch {
	case t.ending() && post:
		return p.endSession(w, r, t.session)
	case post && strings.HasSuffix(path, countSuffix):
		return p.countTokens(w, r, t)
	case post && calls:
		return p.chat(w, r, t)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return p.sessionPage(w, r, path)
	}
	return errNotServed
}

// decode decodes the body of a request about a session into v. An empty body leaves v unchanged.
func (p *Proxy) decode(w http.ResponseWriter, r *http.Request, v any) *refusal {
	limit := p.limits.PageBytes
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	var text []byte
	bad := p.receive(r.Context(), w, func() (err error) {
		text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return tooLarge(limit)
		}
		return err
	})
	if bad != nil || len(bytes.TrimSpace(text)) == 0 {
		return bad
	}
	// A text can have been cut in the middle of a character, for example. The decoder replaces its half.
	err := strictjson.Check(string(text), strictjson.Options{HalfPairs: true})
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(v)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s cannot be a JSON %s", cmp.Or(wrong.Field, "it"), wrong.Value) // without the names of Go's types
	}
	if err != nil {
		return &refusal{http.StatusBadRequest, "bad_request", fmt.Sprintf("the body is not valid: %v", err)}
	}
	return nil
}

func tooLarge(limit int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the request body is larger than %d bytes", limit)}
}
