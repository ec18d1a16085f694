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

// Weights configures the weight updates of the scripted engine, as by a trainer. Every call of a
// scripted agent has one version. Its trace names the version in SGLang's format (weight_version),
// and so do the pages /model_info and /get_model_info, which the simulator serves for the engine.
// The zero value is an engine without updates; its version is "default".
type Weights struct {
	// Every is the time between two updates, and Calls the number of calls between them. Set only
	// one.
	Every time.Duration
	Calls int
	// Engines is the number of engines that make the calls. They are updated one after the other
	// within one period. A call or a page request uses any of them. Default 1.
	Engines int
	// Lag is the time from the change of the weights to the change of the page. It can be negative.
	// It needs Every.
	Lag time.Duration
	// Fall, if positive, restarts the number after this many versions.
	Fall int
	// Words makes page and traces use a word instead of the number.
	Words bool
	// Log, if not nil, gets one JSON line for every call, with its step_id and its true version.
	Log io.Writer
}

// ParseWeights parses all fields of Weights except Log. Examples:
//
//	every=300ms    every=40,engines=2    every=2s,lag=100ms,fall=3    every=40,words
//
// every is a duration or a number of calls.
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
			return w, fmt.Errorf("lettasim: weights: %s: %q is not a valid value", name, value)
		}
	}
	if !w.changing() {
		return w, errors.New("lettasim: weights: every is required: a duration such as 300ms, or a number of calls")
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
		return errors.New("lettasim: weights: lag requires every as a duration")
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

// version returns the version of engine e at a time, after a number of calls.
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

// versionName returns the engine's name for the version.
func (t *trainer) versionName(version int) string {
	if !t.changing() || t.Words { // with Words, as if the trainer does not name its weights
		return "default"
	}
	return strconv.Itoa(version)
}

// assign assigns versions to the calls of a run, and logs them. It spreads the calls evenly over
// the time of the send.
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
		_, _ = t.Log.Write(append(line, '\n')) // a reader of the log notices a missing line
	}
}

func (r *scriptedRun) weightVersion(k int) string {
	if k >= len(r.versions) {
		return "default"
	}
	return r.trainer.versionName(r.versions[k])
}

// modelInfo serves the engine's page in SGLang's format, which a real Letta server does not have.
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
