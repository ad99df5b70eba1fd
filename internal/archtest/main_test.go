package archtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain has the tests run at the top of the module, so that paths are those of the repository.
func TestMain(m *testing.M) {
	if err := goToTop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// goToTop changes to the folder of go.mod, which is above this package.
func goToTop() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return os.Chdir(dir)
		}
		above := filepath.Dir(dir)
		if above == dir {
			return errors.New("no folder above the package has a go.mod")
		}
		dir = above
	}
}
