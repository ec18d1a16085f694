package tokenizetest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
)

// Gunzip returns the decompressed content of a gzip file.
func Gunzip(path string) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Recording returns the content of a file in testdata/letta. Python wrote these files with values
// that are not valid JSON, such as NaN. Recording replaces such values with null, as the server
// does.
func Recording(path string) ([]byte, error) {
	b, err := Gunzip(path)
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		for _, before := range []string{"[", ":", ": "} {
			b = bytes.ReplaceAll(b, []byte(before+word), []byte(before+"null"))
		}
	}
	return b, err
}
