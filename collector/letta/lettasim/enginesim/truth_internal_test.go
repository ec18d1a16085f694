package enginesim

import "testing"

// TestCallsInOrder checks that calls that end out of order are listed in the order of arrival.
func TestCallsInOrder(t *testing.T) {
	t.Parallel()
	var e Engine
	first, second := e.truth.begin(), e.truth.begin()
	e.truth.keep(Call{N: second})
	e.truth.keep(Call{N: first})
	if calls := e.Calls(); len(calls) != 2 || calls[0].N != first || calls[1].N != second {
		t.Errorf("Calls = %+v, want %d before %d", calls, first, second)
	}
}
