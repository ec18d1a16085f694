//go:build linux

package cases_test

import (
	"cmp"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// An engine is a simulated engine that can be killed and restarted.
type engine struct {
	cfg    enginesim.Config
	url    string
	sim    *enginesim.Engine // nil: killed
	server *http.Server
	past   []enginesim.Call // of the engines that were killed
	open   sync.RWMutex     // requests hold it
}

func newEngine(t *testing.T, model string, change ...func(*enginesim.Config)) *engine {
	t.Helper()
	files := os.DirFS(model)
	e := &engine{cfg: enginesim.Config{
		Tokenizer: must(bpe.Load(files, bpe.Options{}))(t), Template: must(chat.Load(files, chat.Options{}))(t).For(true),
		Model: model, MaxModelLen: 24000, Version: "3",
	}}
	for _, f := range change {
		f(&e.cfg)
	}
	e.start(t)
	t.Cleanup(e.kill)
	return e
}

// start starts the engine; after a kill, on the same port.
func (e *engine) start(t *testing.T) {
	t.Helper()
	listener := must(new(net.ListenConfig).Listen(t.Context(), "tcp", cmp.Or(strings.TrimPrefix(e.url, "http://"), "127.0.0.1:0")))(t)
	e.url = "http://" + listener.Addr().String()
	sim := must(enginesim.New(e.cfg))(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.open.RLock()
		defer e.open.RUnlock()
		if e.sim != sim { // the connection was accepted, but too late for Close
			panic(http.ErrAbortHandler)
		}
		sim.ServeHTTP(w, r)
	})}
	e.open.Lock()
	e.sim, e.server = sim, server
	e.open.Unlock()
	go func() { _ = server.Serve(listener) }() // until kill
}

// kill closes all connections.
func (e *engine) kill() {
	if e.sim == nil {
		return
	}
	_ = e.server.Close() // there is nothing to lose
	e.open.Lock()
	defer e.open.Unlock()
	e.past, e.sim = append(e.past, e.sim.Calls()...), nil
}

// calls returns the calls of the engine, also those before it was killed.
func (e *engine) calls() []enginesim.Call {
	if e.sim == nil {
		return e.past
	}
	return append(slices.Clone(e.past), e.sim.Calls()...)
}
