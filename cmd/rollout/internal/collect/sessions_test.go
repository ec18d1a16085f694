package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// sessionsSource is a store.Source with one list.
type sessionsSource struct {
	store.Source
	entries []store.Entry
	records map[string]*session.Record // a session without a record is damaged, except "gone"
	read    []string
}

func (s *sessionsSource) Sealed(_ context.Context, after string) ([]store.Entry, error) {
	return slices.DeleteFunc(slices.Clone(s.entries), func(e store.Entry) bool { return e.Name <= after }), nil
}

func (s *sessionsSource) Read(_ context.Context, id string) (*session.Record, error) {
	s.read = append(s.read, id)
	switch rec := s.records[id]; {
	case rec != nil:
		return rec, nil
	case id == "gone":
		return nil, store.ErrUnknown
	}
	return nil, store.ErrDamaged
}

// TestSessionFeed proves that the feed takes a task from the list, and reads only the sessions whose task
// is not in the list.
func TestSessionFeed(t *testing.T) {
	t.Parallel()
	task := &session.Task{ID: "t", Prompt: "fix it", Answer: new("42"), Metadata: json.RawMessage(`{"a":1,"b":1}`)}
	metadata := json.RawMessage(`{"b":2}`)
	src := &sessionsSource{
		entries: []store.Entry{
			{Name: "1", ID: "listed", About: &store.About{Task: task, Metadata: metadata}},
			{Name: "2", ID: "bare", About: &store.About{}},
			{Name: "3", ID: "known"},
			{Name: "4", ID: "large"},
			{Name: "5", ID: "gone"},
			{Name: "6", ID: "damaged"},
		},
		records: map[string]*session.Record{"large": {Head: session.Head{Task: task}, End: &session.End{Metadata: metadata}}},
	}
	feed := newSessionFeed(&Plan{config: &config.Config{}, sessions: src}, func(id string) bool { return id == "known" })
	var got []string
	for task, err := range feed.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		answer := ""
		if task.Answer != nil {
			answer = *task.Answer
		}
		got = append(got, fmt.Sprint(task.ID, " ", task.Recorded.Run, " ", task.Recorded.TaskID, " ", task.Messages, answer, string(task.Metadata)))
	}
	want := []string{
		`listed listed t [fix it]42{"a":1,"b":2}`, `bare bare  []`, `large large t [fix it]42{"a":1,"b":2}`, `damaged damaged  []`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tasks are\n%q, want\n%q", got, want)
	}
	if want := []string{"large", "gone", "damaged"}; !slices.Equal(src.read, want) {
		t.Errorf("the feed reads %v, want %v", src.read, want)
	}
	if c := feed.Counts(); c.Given != 4 || c.Known != 1 {
		t.Errorf("%+v", c)
	}
}
