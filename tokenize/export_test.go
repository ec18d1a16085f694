package tokenize

import "github.com/rollout-rl/rollout/tokenize/internal/textview"

// TextViews reports whether texts of turns are views.
const TextViews = textview.Shared

// Float32Of is float32Of, for the tests of exactness.
func Float32Of(number []byte) (float32, bool) { return float32Of(number) }

// SlowFloats returns how many log-probabilities of the last reply strconv had to convert, whatever
// the chunks.
func (d *Decoder) SlowFloats() int { return d.slowFloats }
