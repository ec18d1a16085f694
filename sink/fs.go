package sink

import (
	"io/fs"

	"github.com/rollout-rl/rollout/sink/store"
)

// An FS is the set of file system operations that the package needs. The names of files and folders
// are operating system paths. Tests use an FS that fails or loses data.
type FS = store.FS

// A File is an open file.
type File = store.File

// OS returns the file system of the operating system.
func OS() FS { return store.OS() }

// OSMode is like OS, but new files get the given mode, before the umask. All users who can read new
// files can also list and enter new folders.
func OSMode(mode fs.FileMode) FS { return store.OSMode(mode) }
