package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// A form is one way of the scripted engine to return ids.
type form struct {
	name    string
	mode    string // how the engine must return ids
	dialect enginesim.Dialect
}

func newEngine(tb testing.TB) *enginesim.Engine {
	tb.Helper()
	return newDialect(tb, enginesim.DialectVLLM)
}

func newDialect(tb testing.TB, d enginesim.Dialect) *enginesim.Engine {
	tb.Helper()
	e, err := enginesim.New(enginesim.Config{Version: "5", MaxModelLen: 4096, Dialect: d, Reasoning: true})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

var forms = []form{
	{"vLLM", "body", enginesim.DialectVLLM},
	{"SGLang", "headers", enginesim.DialectSGLang},
	{"SGLang without sglext", "whole answers", enginesim.DialectSGLangPlain},
	{"SGLang 0.5.18", "whole answers", enginesim.DialectSGLangFirst},
}

func (f form) engine(tb testing.TB) *enginesim.Engine {
	tb.Helper()
	return newDialect(tb, f.dialect)
}

func chatBody(script string, stream bool, more string) string {
	return fmt.Sprintf(`{"model":"policy","messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"Do it. [script:%s]"}],`+
		`"tools":[{"type":"function","function":{"name":"add","parameters":{}}}],"stream":%v%s}`, script, stream, more)
}

// A trialed engine passes the proxy's trials to a scripted engine, and all other calls to next.
type trialed struct {
	e    http.Handler
	next http.HandlerFunc
}

func (h trialed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Method == http.MethodGet || bytes.Contains(body, []byte(`"content":"Hi"`)) {
		h.e.ServeHTTP(w, r)
		return
	}
	h.next(w, r)
}

// chopped sends the answers of an engine in pieces of random sizes.
func chopped(h http.Handler, draw *rand.Rand) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := httptest.NewRecorder()
		h.ServeHTTP(kept, r)
		maps.Copy(w.Header(), kept.Header())
		w.WriteHeader(kept.Code)
		for kept.Body.Len() > 0 {
			_, _ = w.Write(kept.Body.Next(1 + draw.IntN(300)))
			_ = http.NewResponseController(w).Flush()
		}
	})
}
