// Package licenses holds the licences of what the binary is built from beside this
// module: the modules whose packages it links, on Linux, macOS and Windows, and Go's
// standard library. `make licenses` writes them anew from the module cache; the test
// fails where they are not those of go.mod, and on a licence that is not allowed.
package licenses

import _ "embed" // the texts

// Text is all of them: for each module its path and version, and its licence and notice
// files as they are.
//
//go:embed licenses.txt
var Text string
