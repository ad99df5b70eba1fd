package mail

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/smtp"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestGroupUnderKills: mail comes to a group of 200, 150 of them elsewhere, while the server is
// killed again and again. Each member here has each message once; each elsewhere gets it, a second
// time only where the kill came between the end of DATA and the commit of its answer.
func TestGroupUnderKills(t *testing.T) {
	t.Parallel()
	messages, kills := 4, 6
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		messages, kills = 100, 150
	}
	const here, elsewhere, inFlight = 50, 150, 36
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu, starting sync.Mutex
	got := map[string]int{} // by recipient and subject
	relay := rig.Serve(t, func(c net.Conn) { rig.KeepSubjects(c, &mu, got) })
	host, port, _ := net.SplitHostPort(relay)
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\ndkim=false\n", host, port), "--outbound", "relay")
	i.AddDomain("example.test")
	var boxes []string
	var members, inner []map[string]any
	for n := range here {
		boxes = append(boxes, i.AddMailbox(fmt.Sprintf("m%d@example.test", n), "correct horse"))
		if n%2 == 0 {
			members = append(members, map[string]any{"user_id": boxes[n]})
		} else {
			inner = append(inner, map[string]any{"email": fmt.Sprintf("m%d@example.test", n)})
		}
	}
	for n := range elsewhere {
		inner = append(inner, map[string]any{"email": fmt.Sprintf("e%d@far.test", n)})
	}
	var group struct {
		GroupID string `json:"group_id"`
	}
	i.Want(201, "POST", "/v1/groups", map[string]any{"email": "inner@example.test", "members": inner}, &group)
	members = append(members, map[string]any{"email": "inner@example.test"}, map[string]any{"email": "e1@far.test"}, map[string]any{"email": "m1@example.test"})
	i.Want(201, "POST", "/v1/groups", map[string]any{"email": "all@example.test", "members": members}, nil)
	var refused struct{ Error struct{ Code string } }
	if status := i.Do("PATCH", "/v1/groups/"+group.GroupID, map[string]any{"members": []map[string]any{{"email": "all@example.test"}}}, &refused); status != 400 || refused.Error.Code != "group_loop" {
		t.Errorf("a group that contains itself through another: %d %+v", status, refused)
	}

	// Bring the messages, each until it is acknowledged, while the server is killed.
	brought := make(chan struct{})
	acknowledged := map[string]bool{}
	go func() {
		defer close(brought)
		for n := range messages {
			for try := 0; ; try++ {
				subject := fmt.Sprintf("s%d.%d", n, try)
				text := "From: far@far.test\r\nTo: all@example.test\r\nSubject: " + subject + "\r\nMessage-ID: <" + subject + "@far.test>\r\n\r\nhello\r\n"
				starting.Lock()
				addr := i.Ready.SMTP
				starting.Unlock()
				err := smtp.SendMail(addr, nil, "far@far.test", []string{"all@example.test"}, []byte(text))
				mu.Lock()
				if err == nil {
					acknowledged[subject] = true
				}
				mu.Unlock()
				if err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond) // between two tries
			}
			time.Sleep(50 * time.Millisecond) // messages come until the last kill
		}
	}()
	for range kills {
		time.Sleep(time.Duration(50+random.IntN(500)) * time.Millisecond) // the kill comes at any moment
		i.Kill()
		starting.Lock()
		i.Start()
		starting.Unlock()
	}
	<-brought
	complete := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for subject := range acknowledged {
			for n := range elsewhere {
				if got[fmt.Sprintf("e%d@far.test %s", n, subject)] == 0 {
					return false
				}
			}
		}
		return true
	}
	for end := time.Now().Add(time.Minute + time.Duration(messages)*2*time.Second); !complete(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a member elsewhere lacks a message")
		}
	}
	second := 0
	mu.Lock()
	for _, n := range got {
		second += n - 1
	}
	mu.Unlock()
	t.Logf("%d messages, %d kills: %d second copies", len(acknowledged), kills, second)
	if second > kills*inFlight {
		t.Errorf("%d second copies", second)
	}
	for n, box := range boxes {
		held := map[string]int{}
		i.EachRow("/v1/email-users/"+box+"/inbox?", func(subject, _ string) { held[subject]++ })
		for subject := range acknowledged {
			if held[subject] != 1 {
				t.Errorf("m%d has %s %d times", n, subject, held[subject])
			}
		}
	}
	i.Stop()
	i.Check()
}
