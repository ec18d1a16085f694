package letta

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A target is where a request goes: a path from /v1 on. Only at makes one.
type target struct {
	path string
	err  error // an id cannot be a part of a path
}

// at puts ids into the places {} of a path, so that each is one part of it whatever is
// in it: an id may come from a file, from a command line, or from a server. An empty id
// would name another thing, as all agents instead of one; it is an error, and nothing is
// sent.
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

// segment returns an id as one part of a path.
func segment(id string) (string, error) {
	switch id {
	case "":
		return "", errNoID
	case ".", "..": // which have a meaning of their own, and no character to escape
		return strings.ReplaceAll(id, ".", "%2E"), nil
	}
	return url.PathEscape(id), nil
}

var errNoID = &classed{ErrRejected, errors.New("the id is empty")}

// needID refuses an empty id in a query, which would then be about everything.
func needID(op, id string) error {
	if id == "" {
		return fmt.Errorf("%s: %w", op, errNoID)
	}
	return nil
}
