package health

import (
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store/storetest"
)

// TestCommandsOfRemediesCanBeRun: the commands have the absolute path of the data directory, flags
// before arguments, and each argument quoted as one word.
func TestCommandsOfRemediesCanBeRun(t *testing.T) {
	st := storetest.Open(t)
	s := &Service{Core: &core.Core{Store: st}}
	dir, err := filepath.Abs(st.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for want, words := range map[string][]string{
		"`mailstead check --data " + dir + "`":                                                       {"check"},
		"`mailstead job resume --data " + dir + " --job job_1`":                                      {"job", "resume", "--job", "job_1"},
		"`mailstead call --data " + dir + " --account acc_1 get_domain '{\"domain_id\":\"dom_1\"}'`": {"call", "--account", "acc_1", "get_domain", `{"domain_id":"dom_1"}`},
		"`mailstead call --data " + dir + ` x 'it'\''s'` + "`":                                       {"call", "x", "it's"},
	} {
		if got := s.commandLine(words...); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
