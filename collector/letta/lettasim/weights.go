package lettasim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Weights configures weight updates of the simulated engine behind scripted agents, as a trainer
// would make them. Every call of a scripted agent is sampled with one version. The trace of the
// call contains the version in SGLang's format (weight_version). The simulator also serves the
// pages /model_info and /get_model_info in place of the engine. These pages also contain the
// version. The zero value means that there are no updates, and the version is "default".
type Weights struct {
	// Every is the time between two updates. Calls is the number of calls between two updates. Only
	// one of Every and Calls can be set.
	Every time.Duration
	Calls int
	// Engines is the number of engines. The engines are updated one after the other within one
	// period. Each call uses a random engine, and requests for the page use the engines in turn.
	// Default 1.
	Engines int
	// Lag is the time for which the page still shows the old version after an update. A negative
	// Lag means that the page shows the new version before the update. Lag requires Every.
	Lag time.Duration
	// Fall, if positive, makes the version number restart at 1 after this many versions.
	Fall int
	// Words makes the page and the traces show the word "default" instead of the version number.
	Words bool
	// Log, if not nil, receives a JSON line for every call, with its step_id and its true version.
	Log io.Writer
}

// ParseWeights parses all fields of Weights except Log. Examples:
//
//	every=300ms    every=40,engines=2    every=2s,lag=100ms,fall=3    every=40,words
//
// The value of "every" is a duration or a number of calls.
func ParseWeights(text string) (w Weights, err error) {
	for option := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "every":
			if w.Calls, err = strconv.Atoi(value); err != nil {
				w.Calls = 0
				w.Every, err = time.ParseDuration(value)
			}
		case "engines":
			w.Engines, err = strconv.Atoi(value)
		case "lag":
			w.Lag, err = time.ParseDuration(value)
		case "fall":
			w.Fall, err = strconv.Atoi(value)
		case "words":
			w.Words = true
		default:
			return w, fmt.Errorf("lettasim: weights: unknown option %q (want every, engines, lag, fall or words)", option)
		}
		if err != nil {
			return w, fmt.Errorf("lettasim: weights: %s: invalid value %q", name, value)
		}
	}
	if !w.changing() {
		return w, errors.New("lettasim: weights: every is required (want a duration such as 300ms, or a number of calls)")
	}
	return w, w.validate()
}

func (w *Weights) changing() bool { return w.Every > 0 || w.Calls > 0 }

func (w *Weights) validate() error {
	switch {
	case w.Every < 0 || w.Calls < 0 || w.Engines < 0 || w.Fall < 0:
		return errors.New("lettasim: weights: all values except lag must be ≥ 0")
	case w.Every > 0 && w.Calls > 0:
		return errors.New("lettasim: weights: every must be a duration or a number of calls, not both")
	case w.Lag != 0 && w.Every == 0:
		return errors.New("lettasim: weights: with lag, every must be a duration")
	}
	return nil
}

type trainer struct {
	Weights
	began time.Time

	mu    sync.Mutex
	calls int // number of calls so far
	asked int // number of page requests
}

// version returns the version of engine e at the given time and after the given number of calls.
func (t *trainer) version(e int, at time.Time, calls int) int {
	engines := max(1, t.Engines)
	n := 0
	if t.Every > 0 {
		n = int((at.Sub(t.began) - time.Duration(e)*t.Every/time.Duration(engines)) / t.Every)
	} else if t.Calls > 0 {
		n = (calls - e*t.Calls/engines) / t.Calls
	}
	n = max(0, n)
	if t.Fall > 0 {
		n %= t.Fall
	}
	return 1 + n
}

// versionName returns the version as the engine reports it.
func (t *trainer) versionName(version int) string {
	if !t.changing() || t.Words { // Words simulates a trainer that does not set the engine's version
		return "default"
	}
	return strconv.Itoa(version)
}

// assign assigns versions to the calls in a run and logs them. It spreads the calls evenly over the
// duration of the send.
func (t *trainer) assign(r *scriptedRun, a *agent, send int) {
	if !t.changing() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(r.script.calls)
	for k := range n {
		at := r.began.Add(r.ended.Sub(r.began) * time.Duration(2*k+1) / time.Duration(2*n))
		e := draw(r.seed, "engine", r.id, strconv.Itoa(k)).n(max(1, t.Engines))
		v := t.version(e, at, t.calls)
		t.calls++
		r.versions = append(r.versions, v)
		if t.Log == nil {
			continue
		}
		line, _ := json.Marshal(map[string]any{
			"step_id": r.stepIDs[k], "run_id": r.id, "agent_id": a.id, "task": a.who.task, "sample": a.who.sample, "attempt": a.who.attempt,
			"send": send, "call": k, "engine": e, "version": v,
		})
		_, _ = t.Log.Write(append(line, '\n')) // if a write fails, a reader of the log notices the missing line
	}
}

func (r *scriptedRun) weightVersion(k int) string {
	if k >= len(r.versions) {
		return "default"
	}
	return r.trainer.versionName(r.versions[k])
}

// modelInfo serves the page of the engine, in SGLang's format. A real Letta server does not serve
// this page.
func (s *Server) modelInfo(*request) answer {
	t := &s.trainer
	t.mu.Lock()
	version := t.version(t.asked%max(1, t.Engines), s.cfg.Now().Add(-t.Lag), t.calls)
	t.asked++
	t.mu.Unlock()
	_, model := splitHandle(s.cfg.Model)
	body := quote([]byte(`{"model_path":`), model)
	body = append(body, `,"is_generation":true,"preferred_sampling_params":null,"weight_version":`...)
	return ok(append(quote(body, t.versionName(version)), '}'))
}
