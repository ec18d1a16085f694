package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// The tables of the pages list exactly the reasons for quarantining a call, and the reasons why a
// tap refuses a prompt.
func TestPagesNameReasons(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, name := range pages(t) {
		text.WriteString(page(t, name))
	}
	var reasons, refusals []string
	phrases := map[string]string{} // the beginning of the second cell
	for r := tokenize.ReasonNone + 1; ; r++ {
		word, err := r.MarshalText()
		if err != nil {
			break
		}
		reasons = append(reasons, string(word))
	}
	for _, r := range tap.Refusals() {
		refusals = append(refusals, r.Word())
		phrases[r.Word()] = " " + r.String()
	}
	for head, want := range map[string][]string{"| reason | why the call is not in `data/` |": reasons, "| word | why the call has no prompt from the tap |": refusals} {
		_, table, found := strings.Cut(text.String(), head+"\n|---|---|\n")
		table, _, _ = strings.Cut(table, "\n\n")
		var got []string
		for line := range strings.SplitSeq(table, "\n") {
			cells := strings.Split(line, "|")
			for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[min(1, len(cells)-1)], -1) {
				got = append(got, word[1])
				if phrase := phrases[word[1]]; !strings.HasPrefix(cells[2], phrase) {
					t.Errorf("the table explains %s with %q, the program with %q", word[1], cells[2], phrase)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !found || !slices.Equal(got, want) {
			t.Errorf("the table %q names %q, want %q", head, got, want)
		}
	}
}
