package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Unknown stands for an unknown version.
const Unknown int32 = -1

// A Config configures the sources of versions.
type Config struct {
	// Version is the user's claim for every send until [Source.SetVersion] is called. It is used
	// only if URL is empty. [Unclaimed] means that there is no claim before SetVersion.
	Version int32

	// URL is a page that reports the version. It proves versions only with [Config.OneEngine]. The
	// page answers a GET with a number, as plain text or JSON, or with a JSON object that has a
	// numeric member weight_version or policy_version. A fragment names another member:
	// http://host/status#step.current. A URL without a path means an SGLang server: /model_info is
	// used, or /get_model_info if /model_info does not exist.
	URL string
	// Name is the name of the page in messages. Default: the scheme, host and path of the URL.
	Name string
	// OneEngine asserts that the engine behind URL makes all calls, and that the number on the page
	// never falls. Without OneEngine, the page proves nothing. The page is then requested only
	// once, so that problems with the page are reported.
	OneEngine bool
	// Delay bounds the time between a change of the weights and the change of the page. Either
	// change can come first. Default 250ms.
	Delay time.Duration
	// Every is the interval between requests while no send waits for an answer. Gap is the shortest
	// time between the starts of two requests. Defaults 1s and 250ms.
	Every, Gap time.Duration
	// Patience bounds the time of one request, and the time that the first send waits for the first
	// answer. After a send has ended, [Span.Version] waits for the next answer for at most Delay +
	// Gap + 2 × Patience. Default 2s.
	Patience time.Duration
	// Client makes the requests. Default: a new client.
	Client *http.Client

	// Traces asks the caller to read the trace of each call without a claimed version. If URL is
	// set, Traces has no effect, because the traces of calls without a proven version are always
	// read.
	Traces bool

	// Notice is called with a message that explains why versions are unknown, once for each kind of
	// message. It must be safe for concurrent use and must not block. Optional.
	Notice func(text string)
}

// Defaults of [Config].
const (
	DefaultDelay    = 250 * time.Millisecond
	defaultEvery    = time.Second
	defaultGap      = 250 * time.Millisecond
	defaultPatience = 2 * time.Second
)

// A Source determines the versions of the sends of one process. Its methods are safe for concurrent
// use. A nil Source is valid: every version is then unknown.
type Source struct {
	cfg   Config
	pages []*url.URL // tried in this order; only the first page that exists is kept
	path  []string   // path of the member that contains the version; nil means defaultMembers

	first chan struct{} // closed when the first request has succeeded or failed
	nudge chan struct{} // capacity 1; signals that a span waits for an answer

	mu      sync.Mutex
	running bool
	asked   time.Time // time at which the newest request began
	// answers are the past answers with a number, oldest first. Answers that no send needs are
	// dropped.
	answers     []answer
	highest     int32 // highest number so far, or Unknown
	gaps        int   // number of answers without a number
	discredited bool  // the page no longer proves anything
	pending     []*Span
	noticed     map[string]bool
	missing     int // number of missing traces in a row
	traced      bool
	proven      int // number of calls to NextAudit
	claim       int32
	claims      int // number of times that the claim changed
}

// An answer is the result of one request for the page. The server read the number at some time
// between the fields began and ended.
type answer struct {
	began, ended time.Time
	version      int32 // Unknown if the answer is not a number
	word         string
	err          error
}

// New returns a Source. It makes no request. Run makes the requests.
func New(cfg Config) (*Source, error) {
	s := &Source{cfg: cfg, first: make(chan struct{}), nudge: make(chan struct{}, 1), highest: Unknown, noticed: map[string]bool{}, claim: Unknown}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"delay", &s.cfg.Delay, DefaultDelay}, {"every", &s.cfg.Every, defaultEvery}, {"gap", &s.cfg.Gap, defaultGap}, {"patience", &s.cfg.Patience, defaultPatience}} {
		if *d.value < 0 {
			return nil, fmt.Errorf("policy version: %s %v: must not be negative", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.usual)
	}
	s.cfg.Client = cmp.Or(s.cfg.Client, &http.Client{})
	switch {
	case cfg.URL != "":
		return s, s.locate()
	case cfg.Version == Unclaimed:
		return s, nil
	case cfg.Version < 0:
		return nil, outOfRange(cfg.Version)
	}
	s.claim = cfg.Version
	return s, nil
}

func (s *Source) locate() error {
	u, err := url.Parse(s.cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("policy version: want an integer ≥ 0 or a URL such as http://127.0.0.1:30000/model_info")
	}
	s.path = members(u.Fragment)
	u.Fragment, u.RawFragment = "", ""
	s.cfg.Name = cmp.Or(s.cfg.Name, u.Scheme+"://"+u.Host+u.EscapedPath())
	s.pages = []*url.URL{u}
	if u.Path == "" || u.Path == "/" {
		s.pages = []*url.URL{u.JoinPath("model_info"), u.JoinPath("get_model_info")}
	}
	return nil
}

// NextAudit reports whether the caller should read the trace of a send whose version the page has
// proved, and pass the trace to Traced. It returns true for the first such send, and then for one
// of every 64 such sends. These audits detect a page that belongs to another engine. Call NextAudit
// once for each such send.
func (s *Source) NextAudit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven++
	return s.proven%auditEvery == 1
}

const auditEvery = 64

// NeedsTraces reports whether traces should be read for calls whose version neither the page nor
// the claim determines. Without a page, it returns false until the claim changes, unless
// Config.Traces is set.
func (s *Source) NeedsTraces() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.URL == "" && s.claims == 0 && !s.cfg.Traces || s.cfg.URL != "" && !s.running {
		return false
	}
	return s.traced || s.missing < maxMissing
}

// maxMissing is the number of missing traces in a row after which no more traces are requested.
const maxMissing = 8

// Traced records the trace of a call: its version or, if version is Unknown, the word that the
// trace contains instead of a version. The parameter page is the version that the page proved or
// that was claimed, or Unknown. Traced reports whether the trace contradicts the page. If it does,
// the page is no longer used.
func (s *Source) Traced(version int32, word string, page int32) (contradicted bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	s.traced, s.missing = true, 0
	wrong := version != Unknown && page != Unknown && version != page && s.cfg.URL != ""
	if wrong {
		s.giveUp()
	}
	s.mu.Unlock()
	switch {
	case s.cfg.URL == "" && version != Unknown && page != Unknown && version != page:
		s.notice("claim", "policy version: the claimed version is %d, but the engine's trace of a call has %d: traces take precedence", page, version)
	case wrong:
		s.notice("wrong", "policy version: %s returned %d during a call, but the engine's trace of the call has %d. The page belongs to another engine and is no longer polled", s.cfg.Name, page, version)
	case version == Unknown && word != "":
		s.notice("trace word", "policy version: weight_version in the engine's traces is %q, not a number. Versions are unknown until the trainer sets a number", word)
	}
	return wrong
}

// TraceMissing records that the server has no trace of one of its calls.
func (s *Source) TraceMissing() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.missing++
	s.mu.Unlock()
}

// notice calls Config.Notice, but only once for each key.
func (s *Source) notice(key, format string, args ...any) {
	s.mu.Lock()
	again := s.noticed[key]
	s.noticed[key] = true
	s.mu.Unlock()
	if !again && s.cfg.Notice != nil {
		s.cfg.Notice(fmt.Sprintf(format, args...))
	}
}

// giveUp makes the Source stop using the page. The caller must hold Source.mu.
func (s *Source) giveUp() {
	s.discredited = true
	s.resolve(func(*Span) bool { return true }, Unknown)
}

// resolve passes the version to the waiting spans that match selects. The caller must hold
// Source.mu.
func (s *Source) resolve(match func(*Span) bool, version int32) {
	kept := s.pending[:0]
	for _, sp := range s.pending {
		if !match(sp) {
			kept = append(kept, sp)
			continue
		}
		if sp.gaps == s.gaps {
			sp.after = version
		}
		close(sp.done)
	}
	clear(s.pending[len(kept):])
	s.pending = kept
}
