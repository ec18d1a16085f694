package collector

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A sample that arrives after the close stays out of the backlog, and its deadline cuts nothing.
func TestBacklogClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(&feed{c: &Collector{}})
		b.close()
		cl := claim{sample: sample{task: &Task{}, groupSize: 1, cut: cutoff{deadline: time.Now().Add(time.Minute)}}}
		if more, err := b.add(t.Context(), cl); more || err != nil {
			t.Errorf("add: %v, %v, want false", more, err)
		}
		if b.list.Len() != 0 {
			t.Errorf("%d samples in the backlog", b.list.Len())
		}
		time.Sleep(time.Hour) // fake time: the deadline passes
	})
}

func TestEventsAreNilSafe(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(Events{}.withDefaults(slog.New(slog.DiscardHandler)))
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			t.Errorf("%s has no default", v.Type().Field(i).Name)
		}
	}
}

// The redacted error explains why an attempt was not taken over, without text of a server or a
// model.
func TestLostAnswerRedacted(t *testing.T) {
	t.Parallel()
	const prose = "canary prose"
	for _, tt := range []struct {
		cause error
		want  string
	}{
		{fmt.Errorf("%w: %s", ErrGone, prose), "the answer was lost, and the server's record of it is incomplete: hole"},
		{fmt.Errorf("%w: reset", ErrConnection), "the answer was lost, and the server's record of it is incomplete: hole; cause: collector: connection failed: reset"},
	} {
		err := fmt.Errorf("reattach: %w", &lostAnswerError{cause: tt.cause, why: errors.New(prose), word: "hole"})
		if got := Redacted(err); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A call that is untrained is not a lost call. A failed sample is quarantined, whatever its reason is.
func TestYieldOfFailures(t *testing.T) {
	t.Parallel()
	failure := func(reason tokenize.Reason, call int32, tokens int) tokenize.Failure {
		return tokenize.Failure{Reason: reason.String(), Call: call, OutputIDs: make([]int32, tokens)}
	}
	y := yieldOf(&tokenize.Sample{
		Rows: []tokenize.Row{{LossMask: []int8{0, 1, 1, 0}, Unscored: 1, Trimmed: 6}},
		Failures: []tokenize.Failure{
			failure(tokenize.ReasonAuxiliary, 1, 10), failure(tokenize.ReasonSuperseded, 2, 20), failure(tokenize.ReasonCutAnswer, 3, 40),
			failure(tokenize.ReasonAmbiguousRetry, 4, 80), failure(tokenize.ReasonSuperseded, -1, 160),
		},
	})
	want := Yield{
		Rows: 1, Trained: 2, UnscoredTokens: 1, TrimmedTokens: 6, Sampled: 2 + 1 + 6 + 310, LostCalls: 1, UntrainedCalls: 3,
		Lost: tokenize.LostTokens{Auxiliary: 10, Superseded: 20, CutAnswers: 40, Quarantined: 240},
	}
	if y != want || y.Balance().Sampled != y.Sampled {
		t.Errorf("%+v, want %+v", y, want)
	}
}

func TestYieldAddsEverything(t *testing.T) {
	t.Parallel()
	var sum, one Yield
	for i, n := range counts(reflect.ValueOf(&one).Elem()) {
		n.SetInt(int64(i + 1))
	}
	sum.add(one)
	sum.add(one)
	for i, n := range counts(reflect.ValueOf(&sum).Elem()) {
		if got, want := n.Int(), int64(2*(i+1)); got != want {
			t.Errorf("count %d of %+v is %d, want %d", i, sum, got, want)
		}
	}
}

// counts returns the numbers in a struct, also in its structs.
func counts(v reflect.Value) (all []reflect.Value) {
	if v.Kind() != reflect.Struct {
		return []reflect.Value{v}
	}
	for _, field := range v.Fields() {
		all = append(all, counts(field)...)
	}
	return all
}

// The needed number is rounded up, but not for a binary rounding error of the factor.
func TestTailNeed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		factor  float64
		planned int
		want    int
	}{
		{"exact in binary", 1.25, 100, 80},
		{"just above in binary", 1.14, 57, 50},
		{"just below in binary", 1.1, 33, 30},
		{"a million", 1.05, 1_050_000, 1_000_000},
		{"rounded up", 1.3, 100, 77},
		{"less than one too many", 1.05, 8, 8},
		{"one", 1.05, 1, 1},
		{"all but nothing", 1.0000001, 7, 7},
		{"none", 2, 0, 0},
	} {
		if got := (Tail{Kind: TailOversample, Factor: tt.factor}).need(tt.planned); got != tt.want {
			t.Errorf("%s: need(%d) with factor %v = %d, want %d", tt.name, tt.planned, tt.factor, got, tt.want)
		}
	}
}

// The gate is open if the worker that saw the server go down acts after the worker that saw it come
// back. Otherwise only probes would be admitted from then on.
func TestGateFollowsTheBreaker(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		backLast bool
	}{{"in order", true}, {"the other way round", false}} {
		t.Run(test.name, func(t *testing.T) {
			c, err := New(Config{Endpoints: []Endpoint{{Name: "one", Backend: struct{ Backend }{}}}, Sink: struct{ Sink }{}})
			if err != nil {
				t.Fatal(err)
			}
			ep, now := c.endpoints[0], time.Now()
			first := ep.lock().Silent(now)
			ep.unlock()
			second := ep.lock().Answered(now.Add(time.Second))
			ep.unlock()
			if !test.backLast {
				first, second = second, first
			}
			if err := ep.applyChange(first, ErrConnection); err != nil {
				t.Fatal(err)
			}
			if err := ep.applyChange(second, nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ep.gate.enter(ctx, false) == nil {
				t.Error("the server is up, and its gate lets nothing in")
			}
		})
	}
}

// Two endpoints with constant room get samples in proportion to their weights, to within one sample
// of each over every span of time.
func TestSharesAreFairOverEverySpan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		weights := []float64{0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64()}
		var endpoints []*endpoint
		for _, w := range weights {
			endpoints = append(endpoints, &endpoint{Endpoint: Endpoint{Weight: w}})
		}
		s := newShares(endpoints)
		s.setReady(0, true)
		s.setReady(1, true)
		on := []bool{true, true, false, false}
		var ahead, least, most float64 // lead of the first over the second, in shares
		for range 5000 {
			if i := 2 + rng.IntN(2); rng.IntN(8) == 0 {
				on[i] = !on[i]
				s.setReady(i, on[i])
			}
			at, _ := s.next()
			if at < 0 || !on[at] {
				t.Fatalf("seed %d: %d is next, of %v", seed, at, on)
			}
			s.assign(at)
			switch at {
			case 0:
				ahead += 1 / weights[0]
			case 1:
				ahead -= 1 / weights[1]
			}
			least, most = min(least, ahead), max(most, ahead)
		}
		if bound := 1/weights[0] + 1/weights[1] + 1e-6; most-least > bound {
			t.Errorf("seed %d: weights %v: the shares are %v apart, want at most %v", seed, weights, most-least, bound)
		}
	}
}

// A waiting caller is woken only when an endpoint comes or goes.
func TestSharesSignalChanges(t *testing.T) {
	t.Parallel()
	s := newShares([]*endpoint{{Endpoint: Endpoint{Weight: 1}}, {Endpoint: Endpoint{Weight: math.Pi}}})
	for _, step := range []struct {
		what    func()
		next    int
		changes bool
	}{
		{func() {}, -1, false},
		{func() { s.setReady(1, true) }, 1, true},
		{func() { s.setReady(1, true) }, 1, false},
		{func() { s.assign(1) }, 1, false},
		{func() { s.setReady(1, false) }, 1, false},
		{func() { s.setReady(0, true) }, 0, true},
		{func() { s.assign(0) }, 1, false},
		{func() { s.setReady(1, false) }, 0, true},
		{func() { s.addMoving(2) }, -1, true},
		{func() { s.setReady(1, true) }, -1, true},
		{func() { s.addMoving(-1) }, -1, false},
		{func() { s.addMoving(-1) }, 1, true},
	} {
		_, changed := s.next()
		step.what()
		select {
		case <-changed:
			if !step.changes {
				t.Error("notified without a change")
			}
		default:
			if step.changes {
				t.Error("not notified of a change")
			}
		}
		if at, _ := s.next(); at != step.next {
			t.Errorf("next is %d, want %d", at, step.next)
		}
	}
}

// said are the sentinels in the table of Class.
var said = map[string]error{
	"ErrTimeout": ErrTimeout, "ErrIdle": ErrIdle, "ErrBusy": ErrBusy, "ErrUnavailable": ErrUnavailable,
	"ErrConnection": ErrConnection, "ErrServer": ErrServer, "ErrAborted": ErrAborted, "ErrGone": ErrGone,
	"ErrRejected": ErrRejected, "ErrMalformedCall": ErrMalformedCall, "ErrContextOverflow": ErrContextOverflow,
	"ErrAgent": ErrAgent, "ErrTool": ErrTool, "ErrNoTurns": ErrNoTurns,
	"ErrNoCalls": ErrNoCalls, "ErrEmptyAnswer": ErrEmptyAnswer, "ErrForeign": ErrForeign, "ErrCensored": ErrCensored,
	"ErrAuth": ErrAuth, "ErrUnusable": ErrUnusable, "ErrStorage": ErrStorage, "ErrMoved": ErrMoved,
}

// An aborted call fails the sample, unless the agent did not read the answer.
func TestAbortedCall(t *testing.T) {
	t.Parallel()
	for reason, want := range map[tokenize.Reason]bool{
		tokenize.ReasonNone: true, tokenize.ReasonNoPrompt: true, tokenize.ReasonSuperseded: false, tokenize.ReasonCutAnswer: false, tokenize.ReasonAuxiliary: false,
	} {
		err := checkEnds(&tokenize.Sample{}, []tokenize.Call{{FinishReason: tokenize.FinishAbort, Reason: reason}})
		if errors.Is(err, ErrAborted) != want {
			t.Errorf("reason %q: error %v", reason, err)
		}
	}
}

// If a rollout is truncated, the last answer of the main conversation reached its length limit. Other
// conversations and left-out calls follow it, and keep their finish reasons.
func TestTheTruncatedCall(t *testing.T) {
	t.Parallel()
	left := func(chain int32, reason tokenize.Reason) tokenize.Call {
		return tokenize.Call{Chain: chain, Grade: tokenize.Quarantined, Reason: reason}
	}
	for _, tt := range []struct {
		name  string
		calls []tokenize.Call
		want  int // the call whose reason is set, or -1
	}{
		{"one conversation", []tokenize.Call{{}, {}}, 1},
		{"the last call is lost", []tokenize.Call{{}, left(0, tokenize.ReasonNoTrace)}, -1},
		{"a subagent follows", []tokenize.Call{{}, {}, {Chain: 1, ChainKind: tokenize.ChainSubagent}}, 1},
		{"left-out calls follow", []tokenize.Call{{}, left(1, tokenize.ReasonAuxiliary), left(0, tokenize.ReasonCutAnswer), left(0, tokenize.ReasonSuperseded)}, 0},
		{"the reason is known", []tokenize.Call{{}, {FinishReason: tokenize.FinishLength}, left(0, tokenize.ReasonCutAnswer)}, -1},
		{"no call", nil, -1},
	} {
		before := slices.Clone(tt.calls)
		if err := checkEnds(&tokenize.Sample{Status: StatusTruncated}, tt.calls); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want >= 0 {
			before[tt.want].FinishReason = tokenize.FinishLength
		}
		if !reflect.DeepEqual(tt.calls, before) {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.calls, before)
		}
	}
}

// The main conversation decides about the reason of a sample without rows.
func TestTheReasonOfASampleWithoutRows(t *testing.T) {
	t.Parallel()
	left := func(chain int32, reason tokenize.Reason) tokenize.Call {
		return tokenize.Call{Chain: chain, Reason: reason, Note: reason.String()}
	}
	for _, tt := range []struct {
		name  string
		calls []tokenize.Call
		want  Class
		text  string
	}{
		{"one conversation", []tokenize.Call{left(0, tokenize.ReasonNoTrace), left(0, tokenize.ReasonHole)}, ClassNoTurns, "the first call: no_trace"},
		{"a title came first", []tokenize.Call{left(1, tokenize.ReasonAuxiliary), left(0, tokenize.ReasonNoIDs)}, ClassTokenMismatch, "call 1: no_ids"},
		{"a retry before a call without ids", []tokenize.Call{left(0, tokenize.ReasonSuperseded), left(0, tokenize.ReasonNoIDs), left(1, tokenize.ReasonAuxiliary)}, ClassTokenMismatch, "call 1: no_ids"},
		{"only untrained calls", []tokenize.Call{left(1, tokenize.ReasonAuxiliary), left(0, tokenize.ReasonSuperseded), left(0, tokenize.ReasonCutAnswer)}, ClassUntrained, "call 2: cut_answer"},
	} {
		err := allQuarantined(&Reply{}, tt.calls)
		if got := Classify(err); got != tt.want || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: class %v, error %v", tt.name, got, err)
		}
	}
}

// The table in the comment of Class has every class and every sentinel, with the kind and the
// reaction of the code.
func TestTheTableOfClassesIsTrue(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "classify.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, group := range file.Comments {
		for line := range strings.Lines(group.Text()) {
			if columns := regexp.MustCompile(`\s{2,}`).Split(strings.TrimSpace(line), -1); strings.HasPrefix(line, "\t") && len(columns) == 4 {
				rows = append(rows, columns)
			}
		}
	}
	classes := Classes()
	if len(rows) != len(classes)+1 {
		t.Fatalf("the table has %d lines, want a head and %d classes", len(rows), len(classes))
	}
	sentinel := regexp.MustCompile(`Err\w+`)
	named := map[error]bool{}
	for i, row := range rows[1:] {
		class := classes[i]
		if row[0] != class.String() {
			t.Errorf("line %d is about %s, want %s", i+1, row[0], class)
		}
		for _, name := range sentinel.FindAllString(row[1], -1) {
			named[said[name]] = true
			if got := Classify(said[name]); got != class {
				t.Errorf("%s: %s is %s", class, name, got)
			}
		}
		if got := kindOf(class); got != row[2] {
			t.Errorf("%s: kind %s, but attempt.end returned %s", class, row[2], got)
		}
		then := row[3]
		if class.Retryable() != strings.HasPrefix(then, "retry") || class.DataRetryable() != strings.HasPrefix(then, "data retry") || class.Fatal() != (then == "run ends") {
			t.Errorf("%s: %q, and the class is retryable %t, data retryable %t, fatal %t", class, then, class.Retryable(), class.DataRetryable(), class.Fatal())
		}
	}
	for _, s := range sentinels {
		if strings.HasPrefix(s.err.Error(), "collector: ") && !named[s.err] {
			t.Errorf("the table does not name %q", s.err)
		}
	}
}

func kindOf(class Class) string {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a := &attempt{Attempt: Attempt{Task: &Task{}}, class: class, err: &AttemptError{Stage: StageRun, Err: errors.New("it failed")}}
	switch class {
	case ClassCancelled:
		stop()
	case ClassLost: // only a takeover finds nothing left
		a.Kind = KindReattach
	default:
	}
	return a.end(ctx).Kind.String()
}
