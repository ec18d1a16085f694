package tokenize

import "github.com/rollout-rl/rollout/tokenize/internal/textview"

// TextViews reports whether texts of turns are views.
const TextViews = textview.Shared

// Float32Of is float32Of, for the tests of exactness.
func Float32Of(number []byte) (float32, bool) { return float32Of(number) }
