package policy_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize"
)

// A page returns what it is set to, and counts requests.
type page struct {
	*httptest.Server
	mu    sync.Mutex
	says  string
	code  int
	asked int
	block chan struct{} // requests wait until it is closed; nil: they do not
}

func startPage(t *testing.T, says string) *page {
	t.Helper()
	p := &page{says: says, code: 200}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		says, code, block := p.says, p.code, p.block
		p.asked++
		p.mu.Unlock()
		if block != nil {
			select {
			case <-block:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(code)
		fmt.Fprint(w, says)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *page) set(says string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = says
}

func (p *page) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// A source is a Source under test, with its notices.
type source struct {
	*policy.Source
	mu   sync.Mutex
	told []string
}

func (s *source) notices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func newSource(t *testing.T, cfg policy.Config) *policy.Source {
	t.Helper()
	s, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts a source with almost no delay. Its long patience keeps a slow machine from looking
// like a silent page.
func run(t *testing.T, cfg policy.Config) *source {
	t.Helper()
	return runSeen(t, cfg, nil)
}

// started starts a page and a source that polls it.
func started(t *testing.T, says string) (*page, *source) {
	t.Helper()
	p := startPage(t, says)
	return p, run(t, policy.Config{URL: p.URL, OneEngine: true})
}

// runSeen is like run. seen is passed to the source's Run.
func runSeen(t *testing.T, cfg policy.Config, seen func(version int32)) *source {
	t.Helper()
	s := &source{}
	cfg.Delay, cfg.Gap, cfg.Every, cfg.Patience = max(cfg.Delay, time.Nanosecond), gap, 5*time.Millisecond, cmp.Or(cfg.Patience, time.Minute)
	cfg.Notice = func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, text)
	}
	s.Source = newSource(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, seen) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	for cfg.URL != "" && !s.NeedsTraces() {
		time.Sleep(time.Millisecond) // until Run has begun
	}
	return s
}

const gap = time.Millisecond

func (s *source) send(t *testing.T, during func()) int32 {
	t.Helper()
	sp := s.Begin(t.Context())
	during()
	sp.End()
	v, from := sp.Version(t.Context())
	if v >= 0 && from != tokenize.VersionURL {
		t.Errorf("version %d from %v, want url", v, from)
	}
	return v
}

// sends fails the test unless a send has the version.
func (s *source) sends(t *testing.T, during func(), want int32) {
	t.Helper()
	if v := s.send(t, during); v != want {
		t.Errorf("version %d, want %d", v, want)
	}
}

// noticed fails the test unless there is one notice, with the text.
func (s *source) noticed(t *testing.T, text string) {
	t.Helper()
	if told := s.notices(); len(told) != 1 || !strings.Contains(told[0], text) {
		t.Errorf("notices %q, want %q", told, text)
	}
}

func none() {}

func TestClaim(t *testing.T) {
	sp := newSource(t, policy.Config{Version: 7}).Begin(t.Context())
	sp.End()
	if v, from := sp.Version(t.Context()); v != 7 || from != tokenize.VersionFlag {
		t.Errorf("Version = %d from %v, want 7 from flag", v, from)
	}
	var nobody *policy.Source
	sp = nobody.Begin(t.Context())
	sp.End()
	if v, _ := sp.Version(t.Context()); v != policy.Unknown || nobody.NeedsTraces() {
		t.Errorf("a nil Source knows version %d", v)
	}
}

// Equal answers before and after a send prove its version, and different answers prove nothing.
func TestBetweenEqualAnswers(t *testing.T) {
	p := startPage(t, `{"weight_version":"3"}`)
	s := run(t, policy.Config{URL: p.URL + "/get_model_info", OneEngine: true})
	s.sends(t, none, 3)
	s.sends(t, func() { p.set(`{"weight_version":"4"}`) }, policy.Unknown)
	s.sends(t, none, 4)
	if told := s.notices(); told != nil {
		t.Errorf("notices: %q", told)
	}
}

// An answer to a request in progress at the end of a send does not count as after it: the number
// can change after the page read it.
func TestAfterMeansAfter(t *testing.T) {
	p, s := started(t, "3")
	sp := s.Begin(t.Context())
	block := make(chan struct{})
	p.mu.Lock()
	p.block = block
	asked := p.asked
	p.mu.Unlock()
	for p.count() == asked { // a request that is answered with 3 is in progress
		time.Sleep(time.Millisecond)
	}
	sp.End()
	p.mu.Lock()
	p.says, p.block = "4", nil
	p.mu.Unlock()
	close(block)
	if v, _ := sp.Version(t.Context()); v != policy.Unknown {
		t.Errorf("version %d from a request that began before the send ended", v)
	}
}

// A page that changes later than the weights does not mislead within Delay.
func TestDelay(t *testing.T) {
	const delay = 60 * time.Millisecond
	p := startPage(t, "3")
	s := run(t, policy.Config{URL: p.URL, OneEngine: true, Delay: delay})
	// On a busy machine a late step shows nothing, and is retried.
	inTime := func(try func(before, after int) bool) {
		t.Helper()
		for i := 3; !try(i, i+1); i++ {
			if i == 200 {
				t.Skip("this machine is too busy for a delay of ", delay)
			}
		}
	}
	inTime(func(before, after int) bool {
		p.set(strconv.Itoa(before))
		for s.send(t, none) != int32(before) {
			time.Sleep(delay / 4)
		}
		sp := s.Begin(t.Context())
		ended := time.Now()
		sp.End() // the next version made its calls, and the page reports it a little later
		time.Sleep(delay / 2)
		p.set(strconv.Itoa(after))
		if time.Since(ended) > delay {
			return false
		}
		if v, _ := sp.Version(t.Context()); v != policy.Unknown {
			t.Errorf("version %d from a page that is %v late, want none: Delay is %v", v, delay/2, delay)
		}
		return true
	})
	inTime(func(before, after int) bool { // an early page: the weights follow it
		before, after = before+1000, after+1000
		p.set(strconv.Itoa(before))
		for s.send(t, none) != int32(before) {
			time.Sleep(delay / 4)
		}
		changed := time.Now()
		p.set(strconv.Itoa(after))
		for n := p.count(); p.count() < n+2; {
			time.Sleep(time.Millisecond)
		}
		sp := s.Begin(t.Context())
		late := time.Since(changed) > delay
		sp.End()
		if late {
			return false
		}
		if v, _ := sp.Version(t.Context()); v == int32(after) {
			t.Errorf("version %d right after the page showed it: the weights can still be %d", v, before)
		}
		return true
	})
}

func TestProvesNothing(t *testing.T) {
	t.Run("a number that falls", func(t *testing.T) {
		p, s := started(t, "9")
		s.sends(t, none, 9)
		s.sends(t, func() { p.set("8") }, policy.Unknown)
		for range 2 {
			s.sends(t, none, policy.Unknown)
		}
		s.noticed(t, "fell from 9 to 8")
	})
	t.Run("a word", func(t *testing.T) {
		p, s := started(t, `{"model_path":"m","weight_version":"default"}`)
		s.sends(t, none, policy.Unknown)
		p.set(`{"weight_version":"0"}`)
		for s.send(t, none) != 0 { // once the trainer has set one
			time.Sleep(time.Millisecond)
		}
		s.noticed(t, `returned "default", not a number`)
	})
	t.Run("a word in between", func(t *testing.T) {
		p, s := started(t, "3")
		v := s.send(t, func() { // the engine restarts and then gets the earlier weights
			p.set("default")
			for len(s.notices()) == 0 {
				time.Sleep(time.Millisecond)
			}
			p.set("3")
		})
		if v != policy.Unknown {
			t.Errorf("version %d of a send during which the page had no number", v)
		}
		for s.send(t, none) != 3 {
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("several engines", func(t *testing.T) {
		p := startPage(t, "3")
		s := run(t, policy.Config{URL: p.URL})
		for range 3 {
			s.sends(t, none, policy.Unknown)
		}
		if told := s.notices(); len(told) != 1 || !strings.Contains(told[0], "--one-engine") || p.count() > 1 {
			t.Errorf("notices: %q, %d requests", told, p.count())
		}
	})
	t.Run("a trace that says another", func(t *testing.T) {
		_, s := started(t, "3")
		s.sends(t, none, 3)
		s.Traced(3, "", 3)
		s.Traced(4, "", policy.Unknown)
		s.Traced(4, "", 3)
		s.sends(t, none, policy.Unknown)
		s.noticed(t, "returned 3 during a call, but the engine's trace of the call has 4")
	})
	t.Run("a page that does not answer", func(t *testing.T) {
		p := startPage(t, "3")
		p.block = make(chan struct{})
		s := run(t, policy.Config{URL: p.URL + "/x?token=secret", OneEngine: true, Patience: 50 * time.Millisecond})
		began := time.Now()
		s.sends(t, none, policy.Unknown)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the send waited %v", took)
		}
		for len(s.notices()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if told := s.notices(); strings.Contains(told[0], "secret") || !strings.Contains(told[0], "/x: no answer within 50ms") {
			t.Errorf("notices: %q", told)
		}
	})
}

// Hundreds of sends that end together cost a few requests.
func TestOnePollServesMany(t *testing.T) {
	p := startPage(t, "5")
	s := run(t, policy.Config{URL: p.URL, OneEngine: true, Delay: 20 * time.Millisecond})
	s.send(t, none)
	before := p.count()
	began := time.Now()
	var g sync.WaitGroup
	for range 500 {
		g.Go(func() {
			sp := s.Begin(t.Context())
			sp.End()
			if v, _ := sp.Version(t.Context()); v != 5 {
				t.Errorf("version %d, want 5", v)
			}
		})
	}
	g.Wait()
	if n, most := p.count()-before, 10+int(time.Since(began)/gap); n > most {
		t.Errorf("%d requests for 500 sends in %v, want at most %d", n, time.Since(began), most)
	}
}

func TestPages(t *testing.T) {
	for _, c := range []struct {
		says, fragment string
		want           int32
		notice         string
	}{
		{"12", "", 12, ""},
		{" \"12\"\n", "", 12, ""},
		{`{"weight_version":12}`, "", 12, ""},
		{`{"policy_version":"12"}`, "", 12, ""},
		{`{"trainer":{"step":12}}`, "#trainer.step", 12, ""},
		{`{"version":12}`, "", -1, "no member weight_version"},
		{`{"trainer":{"step":12}}`, "#trainer.steps", -1, "no member trainer.steps"},
		{"12", "#step", -1, "not a JSON object"},
		{"<html>", "", -1, `returned "<html>"`},
		{"-1", "", -1, `returned "-1"`},
		{"2147483648", "", -1, `returned "2147483648"`},
		{`{"weight_version":null}`, "", -1, `returned "null"`},
		{"1.5", "", -1, `returned "1.5"`},
		{"", "", -1, `returned ""`},
	} {
		t.Run(c.says+c.fragment, func(t *testing.T) {
			p := startPage(t, c.says)
			s := run(t, policy.Config{URL: p.URL + "/v" + c.fragment, OneEngine: true})
			s.sends(t, none, c.want)
			if told := strings.Join(s.notices(), "\n"); c.notice == "" && told != "" || !strings.Contains(told, c.notice) {
				t.Errorf("notices: %q, want %q", told, c.notice)
			}
		})
	}
}

// An address without a path means the page of SGLang, by its newer or older name.
func TestSGLang(t *testing.T) {
	for _, name := range []string{"/model_info", "/get_model_info"} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+name, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"model_path":"m","is_generation":true,"weight_version":"6"}`)
		})
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		s := run(t, policy.Config{URL: srv.URL, OneEngine: true})
		s.sends(t, none, 6)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []policy.Config{{Version: -1}, {URL: "ftp://x"}, {URL: "127.0.0.1:30000"}, {URL: "http://x", Delay: -1}} {
		if _, err := policy.New(c); err == nil {
			t.Errorf("New(%+v): no error", c)
		}
	}
}
