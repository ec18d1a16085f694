package collector_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/rollout-rl/rollout/collector"
)

// A notebook is a journal in memory. It stores every entry as a line of text.
type notebook struct {
	err func(line string) error

	mu    sync.Mutex
	lines []string
}

func (n *notebook) note(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		if err := n.err(line); err != nil {
			return err
		}
	}
	n.lines = append(n.lines, line)
	return nil
}

func (n *notebook) Begin(a collector.Attempt, endpoint string) error {
	return n.note("begin %s/%d %s at %s", taskOf(a.Key), a.N, a.Kind, endpoint)
}

func (n *notebook) Agent(key string, attempt int, id string) error {
	return n.note("agent %s/%d", taskOf(key), attempt)
}

func (n *notebook) ServerRun(key string, attempt int, id string) error {
	return n.note("run %s/%d %s", taskOf(key), attempt, id)
}

func (n *notebook) End(key string, attempt int, class collector.Class, charged bool) error {
	return n.note("end %s/%d %v %t", taskOf(key), attempt, class, charged)
}

// keyOf returns the key of a sample of tasks(n); taskOf is the inverse and returns names such as
// t3-1.
func keyOf(task, index int) string {
	return collector.SampleKey(&collector.Task{ID: fmt.Sprintf("t%d", task), Messages: []string{"hello"}}, index)
}

var names = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for task := range 800 {
		for index := range samplesOf(task) {
			m[keyOf(task, index)] = fmt.Sprintf("t%d-%d", task, index)
		}
	}
	return m
})

// samplesOf keeps the table of names small: only the first tasks have several samples.
func samplesOf(task int) int {
	if task < 50 {
		return 8
	}
	return 1
}

func taskOf(key string) string { return names()[key] }

// A revived backend is a scripted one with agents of an earlier process. If the script sets
// openErr, nothing can be taken over.
type revived struct {
	scripted
	reattached []collector.OpenAttempt
	was        []collector.Attempt
}

func (b *revived) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	b.mu.Lock()
	b.reattached, b.was = append(b.reattached, left), append(b.was, a)
	b.mu.Unlock()
	agent, err := b.Open(ctx, a)
	if err == nil && a.ServerRun != nil {
		for _, id := range append(left.ServerRuns, "run-new") {
			a.ServerRun(id)
		}
	}
	return agent, err
}

// lefts returns a lookup in a table by sample name.
func lefts(m map[string]collector.SampleState) func(string) collector.SampleState {
	return func(key string) collector.SampleState { return m[taskOf(key)] }
}

func openAt(endpoint string, n int) collector.SampleState {
	return collector.SampleState{Attempts: n, Open: &collector.OpenAttempt{N: n, Endpoint: endpoint, AgentID: "agent", ServerRuns: []string{"run-old"}}}
}
