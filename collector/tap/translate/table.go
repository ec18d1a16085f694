package translate

import (
	"fmt"
	"slices"
	"strings"
)

// A Table contains the rules for the members of one object, or for the values of one member.
type Table struct {
	// Title names the object, such as "request" or "input item".
	Title string
	Rules []Rule
}

// A Rule states what happens to a member.
type Rule struct {
	Member string
	Action Action
	// Note states the result of a translation, or the reason.
	Note string
}

// An Action states what happens to a member. The package comment describes the actions.
type Action string

// The actions.
const (
	Passed     Action = "passed"
	Translated Action = "translated"
	Dropped    Action = "dropped"
	Refused    Action = "refused"
)

// Find returns the rule for a member. It returns false if the table has none.
func (t *Table) Find(member string) (Rule, bool) {
	i := slices.IndexFunc(t.Rules, func(r Rule) bool { return r.Member == member })
	if i < 0 {
		return Rule{}, false
	}
	return t.Rules[i], true
}

// Markdown returns the tables of a dialect as Markdown.
func Markdown(tables []Table) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "### %s\n\n| member | action | result or reason |\n|---|---|---|\n", t.Title)
		for _, r := range t.Rules {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Member, r.Action, r.Note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
