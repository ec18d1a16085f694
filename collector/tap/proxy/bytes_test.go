package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A plan is a random exchange: the request, and the answer with its pieces and its break.
type plan struct {
	method, path         string
	body                 []byte
	sized                bool // with Content-Length, otherwise chunked
	answer               []byte
	kind                 string
	answerSized          bool
	status               int
	cuts                 []int // offsets where the answer is flushed
	breaks               int   // offset where the engine cuts off the answer, or -1
	trailer              string
	header, answerHeader http.Header
}

func draw(r *rand.Rand) *plan {
	words := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return b
	}
	ids := make([]int32, r.IntN(3000))
	for i := range ids {
		ids[i] = r.Int32N(151_936)
	}
	p := &plan{method: http.MethodPost, breaks: -1, status: http.StatusOK, kind: "application/json", sized: r.IntN(2) == 0, answerSized: r.IntN(2) == 0}
	p.path = []string{"/generate", "/generate", "/v1/chat/completions", "/v1/completions", "/flush_cache?x=1&y=a;b", "/a%2Fb//c"}[r.IntN(6)]
	switch r.IntN(4) {
	case 0:
		p.body = words(r.IntN(5000))
	case 1:
		p.body = []byte(asked(ids)[:r.IntN(len(asked(ids)))])
	default:
		p.body = []byte(asked(ids))
	}
	switch r.IntN(4) {
	case 0:
		p.answer = words(r.IntN(70_000))
	case 1:
		p.answer, p.kind = []byte("data: "+answered(len(ids), ids)+"\n\ndata: [DONE]\n\n"), "text/event-stream"
	default:
		p.answer = []byte(answered(len(ids), ids))
	}
	if r.IntN(4) == 0 {
		p.status = []int{201, 204, 304, 400, 404, 422, 500, 503}[r.IntN(8)]
		if p.status == 204 || p.status == 304 {
			p.answer = nil
		}
	}
	for range r.IntN(6) {
		p.cuts = append(p.cuts, r.IntN(len(p.answer)+1))
	}
	slices.Sort(p.cuts)
	if len(p.answer) > 0 && r.IntN(4) == 0 {
		p.breaks = r.IntN(len(p.answer))
	}
	if r.IntN(3) == 0 && !p.answerSized && p.answer != nil {
		p.trailer = "sum"
	}
	p.header = http.Header{"X-Own": {"a", "b"}, "Authorization": {"Bearer t"}, "X-Forwarded-For": {"1.2.3.4"}, "Accept-Encoding": {"gzip, br"}, "Content-Type": {"application/json"}, "User-Agent": {"python-httpx/0.28.1"}}
	p.answerHeader = http.Header{"X-Engine": {"1", "2"}, "Set-Cookie": {"a=b"}, "Content-Type": {p.kind}, "Server": {"uvicorn"}}
	if r.IntN(4) == 0 {
		p.answerHeader["Content-Type"] = nil // no Content-Type
	}
	return p
}

// A planned is an engine that answers by the plan, and records what it got.
type planned struct {
	p      *plan
	got    []byte
	header http.Header
	uri    string
	err    error
}

func (e *planned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.got, e.err = io.ReadAll(r.Body)
	e.header, e.uri = r.Header.Clone(), r.Method+" "+r.RequestURI
	p := e.p
	maps.Copy(w.Header(), p.answerHeader)
	w.Header()["Date"] = []string{"today"}
	if p.answerSized {
		w.Header().Set("Content-Length", strconv.Itoa(len(p.answer)))
	}
	if p.trailer != "" {
		w.Header().Set("Trailer", p.trailer)
	}
	w.WriteHeader(p.status)
	at := 0
	for _, cut := range append(slices.Clone(p.cuts), len(p.answer)) {
		if p.breaks >= 0 && cut > p.breaks {
			_, _ = w.Write(p.answer[at:p.breaks])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(p.answer[at:cut])
		_ = http.NewResponseController(w).Flush()
		at = cut
	}
	if p.trailer != "" {
		w.Header().Set(p.trailer, fmt.Sprintf("%x", sha256.Sum256(p.answer)))
	}
}

// seen is an answer as the client got it.
type seen struct {
	status          int
	body            []byte
	header, trailer http.Header
	length          int64
	broken          bool
}

func send(t *testing.T, url string, p *plan, chop *rand.Rand) (s seen) {
	t.Helper()
	var body io.Reader = bytes.NewReader(p.body)
	if !p.sized {
		body = &random{bytes.NewReader(p.body), chop}
	}
	req, err := http.NewRequestWithContext(t.Context(), p.method, url+p.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = p.header.Clone()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	s.status, s.header, s.length = res.StatusCode, res.Header, res.ContentLength
	s.body, err = io.ReadAll(res.Body)
	s.broken, s.trailer = err != nil, res.Trailer
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%v", err)
	}
	return s
}

type random struct {
	r    *bytes.Reader
	chop *rand.Rand
}

func (r *random) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), 1+r.chop.IntN(900))]) }

// TestBytes proves that client and engine get the same bytes, status and headers as without the
// tap, for any pieces, even if the engine cuts off its answer.
func TestBytes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for i := range 300 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		p := draw(r)
		engine := &planned{p: p}
		direct := httptest.NewServer(engine)
		want := send(t, direct.URL, p, r)
		told := engine.header
		direct.Close()

		engine.header = nil
		rig := newRig(t, proxy.Config{}, engine)
		got := send(t, rig.url, p, r)
		name := fmt.Sprintf("seed %d, exchange %d: %s %s, %d bytes, %d %s", seed, i, p.method, p.path, len(p.body), p.status, p.kind)
		if !bytes.Equal(engine.got, p.body) || engine.err != nil || engine.uri != p.method+" "+p.path {
			t.Fatalf("%s: the engine got %s and %d bytes, %v", name, engine.uri, len(engine.got), engine.err)
		}
		if !maps.EqualFunc(engine.header, told, slices.Equal) {
			t.Fatalf("%s: the engine got the headers %v, without the tap %v", name, engine.header, told)
		}
		if got.status != want.status || !bytes.Equal(got.body, want.body) || got.broken != want.broken || got.length != want.length {
			t.Fatalf("%s: the client got %d, %d of %d bytes, broken %v; without the tap %d, %d of %d bytes, broken %v", name,
				got.status, len(got.body), got.length, got.broken, want.status, len(want.body), want.length, want.broken)
		}
		if !maps.EqualFunc(got.header, want.header, slices.Equal) || !maps.EqualFunc(got.trailer, want.trailer, slices.Equal) {
			t.Fatalf("%s: the client got %v %v, without the tap %v %v", name, got.header, got.trailer, want.header, want.trailer)
		}
		if s := rig.proxy.Stats(); s.Panics > 0 {
			t.Fatalf("%s: %d panics", name, s.Panics)
		}
		for _, c := range rig.kept.all() {
			if c.Cut && c.Output != nil || got.broken && !c.Cut {
				t.Fatalf("%s: kept %+v", name, c)
			}
		}
	}
}

// TestBreakAtOnce proves that the client gets the head of an answer that is cut off directly after
// it.
func TestBreakAtOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	p := &plan{method: http.MethodPost, path: "/generate", body: []byte(asked(nil)), sized: true, answer: []byte(answered(0, nil)), answerSized: true, status: http.StatusOK, header: http.Header{}}
	rig := newRig(t, proxy.Config{}, &planned{p: p})
	for range 500 {
		if got := send(t, rig.url, p, r); got.status != http.StatusOK || !got.broken {
			t.Fatalf("status %d, broken %v", got.status, got.broken)
		}
	}
}
