package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Unknown stands for a version that is not known.
const Unknown int32 = -1

// A Config says where versions come from. Version, URL or Traces is used.
type Config struct {
	// Version is the user's claim about every send of this process, until
	// [Source.SetVersion] says another one. It is used if URL is empty. [Unclaimed]: nothing is
	// claimed before SetVersion is called.
	Version int32

	// URL is a page that tells the version: see [Config.OneEngine] for what it proves. It
	// answers a GET with a number, as plain text or JSON, or with a JSON object whose
	// member weight_version or policy_version is one. A fragment names another member:
	// http://host/status#step.current. A URL without a path means SGLang: /model_info, or
	// /get_model_info if that does not exist.
	URL string
	// Name is what messages call the page. Default: its scheme, host and path. Nothing
	// else of the URL is ever told.
	Name string
	// OneEngine is the user's word that the engine behind URL makes all calls, and that
	// its number never falls. Without it the page is asked once, to name what is wrong
	// with it, and proves nothing.
	OneEngine bool
	// Delay is how much earlier or later than the weights the page may change. Default
	// 250ms.
	Delay time.Duration
	// Every is the time between two requests if nothing waits for one, and Gap the least
	// time between the beginnings of two. Defaults 1s and 250ms.
	Every, Gap time.Duration
	// Patience bounds one request, what the first send waits for the first answer, and
	// what a finished send waits for the answer after it, besides Delay and Gap. Default
	// 2s.
	Patience time.Duration
	// Client makes the requests. Default: one of its own.
	Client *http.Client

	// Traces says that the trace of each call is read whose version nobody claims. It is for
	// no URL, with which traces are read where it leaves versions open.
	Traces bool

	// Seen is told the first number of the page and each higher one, while the page proves
	// something. It is called by Run, and must not block. Default: nobody is told.
	Seen func(version int32)
	// Notice is told, once for each kind, why versions are unknown. It may be called from
	// any goroutine, and must not block. Default: nobody is told.
	Notice func(text string)
}

// The defaults of [Config].
const (
	DefaultDelay    = 250 * time.Millisecond
	DefaultEvery    = time.Second
	DefaultGap      = 250 * time.Millisecond
	DefaultPatience = 2 * time.Second
)

// A Source tells the versions of the sends of one process. Its methods may be called from
// many goroutines, and on nil: then nothing is known.
type Source struct {
	cfg   Config
	pages []*url.URL // tried in this order; the first that exists stays
	path  []string   // of the member that is read; nil: the usual names

	first chan struct{} // closed when the first request is answered or has failed
	nudge chan struct{} // of capacity 1: a span waits for an answer

	mu      sync.Mutex
	running bool
	asked   time.Time // when the newest request began
	// answers are the numbers of the past, the oldest one first: as many as Delay needs.
	answers []answer
	most    int32 // the highest number so far, or Unknown
	gaps    int   // how often the page had no number
	useless bool  // the page proves nothing any more
	pending []*Span
	told    map[string]bool
	missing int // traces in a row that the server does not have
	traced  bool
	proven  int // sends of which Audits was asked
	claim   int32
	claims  int // how often claim has changed
}

// An answer is what the page said. The page read its number between began and ended.
type answer struct {
	began, ended time.Time
	version      int32 // Unknown: not a number
	word         string
	err          error
}

// New makes a Source. It asks nothing: Run does.
func New(cfg Config) (*Source, error) {
	s := &Source{cfg: cfg, first: make(chan struct{}), nudge: make(chan struct{}, 1), most: Unknown, told: map[string]bool{}, claim: Unknown}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"delay", &s.cfg.Delay, DefaultDelay}, {"every", &s.cfg.Every, DefaultEvery}, {"gap", &s.cfg.Gap, DefaultGap}, {"patience", &s.cfg.Patience, DefaultPatience}} {
		if *d.value < 0 {
			return nil, fmt.Errorf("policy version: %s %v: must not be negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if s.cfg.Client == nil {
		s.cfg.Client = &http.Client{}
	}
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

// locate finds the pages that URL means.
func (s *Source) locate() error {
	u, err := url.Parse(s.cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("policy version: want a whole number ≥ 0, or a URL such as http://127.0.0.1:30000/model_info")
	}
	s.path = members(u.Fragment)
	u.Fragment, u.RawFragment = "", ""
	if s.cfg.Name == "" {
		s.cfg.Name = u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	s.pages = []*url.URL{u}
	if u.Path == "" || u.Path == "/" {
		s.pages = []*url.URL{u.JoinPath("model_info"), u.JoinPath("get_model_info")}
	}
	return nil
}

// Audits reports whether the trace of a send should be read, and be told to Traced, although
// the page has proved its version: that of the first such send, and of one of many later
// ones. It finds a page that is not the engine's. It is asked once for each of these sends.
func (s *Source) Audits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven++
	return s.proven%auditEvery == 1
}

// auditEvery is of how many sends whose version the page proved one is compared with a trace.
const auditEvery = 64

// Asks reports whether a trace should be read for a call whose version the page leaves open,
// or whose send the claim changed in. Where no claim has changed none is.
func (s *Source) Asks() bool {
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

// maxMissing is how many traces in a row the server may lack before none is asked for: it
// keeps none.
const maxMissing = 8

// Traced tells what the trace of a call said: its version, and the word that it had in its
// place where it is Unknown. page is what the page proved or the user claims, or Unknown.
// Traced reports whether the trace contradicts the page, which is not believed any more
// then.
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
		s.notice("claim", "policy version: you said %d, and the engine's trace of a call says %d: where a trace was read its word is taken", page, version)
	case wrong:
		s.notice("wrong", "policy version: %s said %d during a call of which the engine itself says %d: the page is not that engine's, and is not asked any more", s.cfg.Name, page, version)
	case version == Unknown && word != "":
		s.notice("trace word", "policy version: the engine calls its weights %q in its traces, which is not a number: such calls have no version until the trainer gives the engine one (weight_version)", word)
	}
	return wrong
}

// Untraced tells that the server has no trace of a call that it made.
func (s *Source) Untraced() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.missing++
	s.mu.Unlock()
}

// notice tells the user, once for each key.
func (s *Source) notice(key, format string, args ...any) {
	s.mu.Lock()
	again := s.told[key]
	s.told[key] = true
	s.mu.Unlock()
	if !again && s.cfg.Notice != nil {
		s.cfg.Notice(fmt.Sprintf(format, args...))
	}
}

// giveUp ends the use of the page. Source.mu is held.
func (s *Source) giveUp() {
	s.useless = true
	s.settle(func(*Span) bool { return true }, Unknown)
}

// settle gives an answer to the spans that wait and match. Source.mu is held.
func (s *Source) settle(match func(*Span) bool, version int32) {
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
