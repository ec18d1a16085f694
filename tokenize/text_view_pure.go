//go:build purego

package tokenize

// stringView copies b; see text_view.go.
func stringView(b []byte) string { return string(b) }

// textViews reports that stringView copies.
const textViews = false
