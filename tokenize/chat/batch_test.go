package chat_test

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A line count of 0 is met once, before the first element: Jinja2 then yields an
// empty line and puts everything else into one.
func TestBatchOfNothing(t *testing.T) {
	t.Parallel()
	tmpl, err := chat.Parse("batch", "{{ [1, 2, 3]|batch(0)|list }}", chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render(nil, chat.Input{})
	if want := "[[], [1, 2, 3]]"; err != nil || string(got) != want {
		t.Errorf("Render() = %s, %v, want %s", got, err, want)
	}
}
