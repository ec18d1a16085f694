package chat_test

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// With a line count of 0, Jinja2 yields one empty line, and then one line with all elements.
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
