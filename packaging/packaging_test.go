package packaging

import (
	"strings"
	"testing"
)

func TestUnitNamesItsPaths(t *testing.T) {
	if Unit(DataDir, Binary) != embeddedUnit {
		t.Errorf("with its own paths the unit is %s", Unit(DataDir, Binary))
	}
	text := Unit("/srv/my $mail/100%", "/home/ann/bin/mailstead")
	for _, want := range []string{
		"\nExecStart=/home/ann/bin/mailstead serve --data \"/srv/my $$mail/100%%\"\n",
		"\nAssertPathExists=|/srv/my $mail/100%%/mailstead.toml\n",
		"\nReadWritePaths=\"/srv/my $mail/100%%\"\n",
		"\nProtectHome=read-only\n",
		"\nUser=mailstead\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	for _, at := range [][2]string{{"/tmp/mail", Binary}, {DataDir, "/var/tmp/mailstead"}} {
		if text := Unit(at[0], at[1]); !strings.Contains(text, "\nPrivateTmp=no\n") {
			t.Errorf("%v is hidden from its own service", at)
		}
	}
	for _, other := range []string{DataDir, Binary, "StateDirectory"} {
		if strings.Contains(text, other) {
			t.Errorf("%q is in %s", other, text)
		}
	}
}
