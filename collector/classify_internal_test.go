package collector

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// said are the sentinels in the table of Class.
var said = map[string]error{
	"ErrTimeout": ErrTimeout, "ErrIdle": ErrIdle, "ErrBusy": ErrBusy, "ErrUnavailable": ErrUnavailable,
	"ErrConnection": ErrConnection, "ErrServer": ErrServer, "ErrAborted": ErrAborted, "ErrGone": ErrGone,
	"ErrRejected": ErrRejected, "ErrMalformedCall": ErrMalformedCall, "ErrContextOverflow": ErrContextOverflow,
	"ErrAgent": ErrAgent, "ErrTool": ErrTool, "ErrNoTurns": ErrNoTurns, "ErrCensored": ErrCensored,
	"ErrAuth": ErrAuth, "ErrUnusable": ErrUnusable, "ErrStorage": ErrStorage,
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
	a := &attempt{class: class, err: &AttemptError{Stage: StageRun, Err: errors.New("it failed")}}
	switch class {
	case ClassCancelled:
		stop()
	case ClassLost: // only a takeover finds nothing left
		a.Kind = KindReattach
	default:
	}
	return a.end(ctx).Kind.String()
}
