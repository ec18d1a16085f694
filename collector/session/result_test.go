package session_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

func TestBuildErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(h *harness)
		want error
	}{
		{"no request", func(*harness) {}, session.ErrNoCalls},
		{"only failed requests", func(h *harness) { h.mainConv().call(done, failed) }, session.ErrNoCalls},
		{"another task", func(h *harness) { h.subConv("look").call(done) }, session.ErrForeign},
		{"the prompt is only in an answer", func(h *harness) { h.subConv("look").turn(says(task), user("ok")).call(done) }, session.ErrForeign},
		{"two calls with one number", func(h *harness) { h.mainConv().turn(runs).call(done); h.record.Calls[1].Number = 1 }, session.ErrDamaged},
		{"an unknown message", func(h *harness) { h.mainConv().call(done); h.record.Calls[0].Messages[0] = 99 }, session.ErrDamaged},
		{"unknown tools", func(h *harness) { h.mainConv().call(done); h.record.Calls[0].Tools = 99 }, session.ErrDamaged},
		{"a missing call", func(h *harness) { h.mainConv().call(done); h.record.End = &session.End{Calls: 2} }, session.ErrDamaged},
	} {
		h := newHarness(task)
		tt.do(h)
		out, err := session.Build(&h.record, session.Config{})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if (out != nil) != (tt.want == session.ErrForeign) {
			t.Errorf("%s: rollout %v", tt.name, out)
		}
		if out != nil {
			if _, err := verify(&h.record, out); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	}
}

func TestTrainAuxiliary(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	h.mainConv().turn(runs, files).call(done)
	title := h.conv("", user("title"))
	title.call(says("a ti"), cut(3, says("a t")))
	title.call(says("a title"))
	out, rows := h.build(t, session.Config{TrainAuxiliary: true})
	if got, want := summary(out), "1:main0 2:main0 3:auxiliary1!superseded 4:auxiliary1"; got != want || len(rows) != 2 {
		t.Errorf("%d rows, got %s, want %s", len(rows), got, want)
	}
}

// TestMainMessages checks the messages of the main chain.
func TestMainMessages(t *testing.T) {
	t.Parallel()
	h := newHarness(task)
	c := h.mainConv().turn(runs, files)
	c.call(done)
	out, _ := h.build(t, session.Config{})
	var want []string
	for _, m := range append(slices.Clone(c.msgs), done) {
		want = append(want, m.json())
	}
	if got, want := string(out.Main.Messages), "["+strings.Join(want, ",")+"]"; got != want {
		t.Errorf("messages\n got %s\nwant %s", got, want)
	}
	if out.Main.Finish != "stop" || out.Number[out.Main.Call] != 2 {
		t.Errorf("main %+v", out.Main)
	}
}
