package letta

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A target is the path of a request, starting with /v1. Only at creates it.
type target struct {
	path string
	err  error // an id is not a valid path segment
}

// at replaces the {} in a path with ids. Each id becomes one path segment, whatever it contains:
// it can come from a file, the command line or a server. An empty id is an error, because it
// would address another resource, such as all agents instead of one. Nothing is sent then.
func at(path string, ids ...string) target {
	for _, id := range ids {
		part, err := segment(id)
		if err != nil {
			return target{path, err}
		}
		path = strings.Replace(path, "{}", part, 1)
	}
	return target{path: path}
}

func segment(id string) (string, error) {
	switch id {
	case "":
		return "", errNoID
	case ".", "..": // special segments without a character to escape
		return strings.ReplaceAll(id, ".", "%2E"), nil
	}
	return url.PathEscape(id), nil
}

var errNoID = &classed{ErrRejected, errors.New("empty id")}

// needID returns an error for an empty id in a query, which would match everything.
func needID(op, id string) error {
	if id == "" {
		return fmt.Errorf("%s: %w", op, errNoID)
	}
	return nil
}
