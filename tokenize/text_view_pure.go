//go:build purego

package tokenize

// stringView is the plain twin of the one in text_view.go.
func stringView(b []byte) string { return string(b) }

// textViews says that stringView copies.
const textViews = false
