package tap_test

import (
	"context"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// TestIndexFollows proves that Join, called as soon as a rollout ends, waits for the calls that the
// spool is still writing, and no longer.
func TestIndexFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spool, err := tap.OpenSpool(tap.SpoolConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := tap.OpenReader(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	x := tap.NewIndex(tap.IndexConfig{Patience: time.Minute, Since: time.Now().Add(-time.Hour)}, reader)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	for n := range int32(50) {
		began := time.Now()
		c := tap.Call{Began: began, Ended: began, Status: 200, Prompt: []int32{1, n, 3}, Output: []int32{5, 7}, Logprobs: []float32{-0.5, -float32(n) / 4}}
		if n%2 == 0 && !spool.Add(&c) {
			t.Fatalf("call %d was not kept", n)
		}
		s := tap.Send{From: began, To: time.Now(), PromptTokens: 3, Calls: []tap.Sampled{{Output: c.Output, Logprobs: c.Logprobs}}}
		m := x.Join(ctx, &tap.Rollout{ID: string('a' + n), Sends: []tap.Send{s}})
		want := tap.RefusedNone
		if n%2 > 0 {
			want = tap.RefusedUnseen
		}
		if m[0].Refusal != want || want == tap.RefusedNone && m[0].Call.Prompt[1] != n {
			t.Fatalf("call %d: got %+v, want %q", n, m[0], want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	shut(t, spool)
}
