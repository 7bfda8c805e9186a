package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// What is shown to a broker, and where; `Own` is a PEM file with key and certificate.
type attempt struct {
	Bootstrap string
	Topic     string
	Ssl       struct{ Ca, Own string }
	Sasl      struct{ Mechanism, Username, Password, Token string }
}

func (a *attempt) login() sasl.Mechanism {
	user, password := a.Sasl.Username, a.Sasl.Password
	switch a.Sasl.Mechanism {
	case "plain":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "oauthbearer":
		return oauth.Auth{Token: a.Sasl.Token}.AsMechanism()
	}
	return nil
}

func (a *attempt) outcome(ctx context.Context) string {
	authority, err := os.ReadFile(a.Ssl.Ca)
	must(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if a.Ssl.Own != "" {
		own, err := tls.LoadX509KeyPair(a.Ssl.Own, a.Ssl.Own)
		must(err)
		config.Certificates = []tls.Certificate{own}
	}
	options := []kgo.Opt{kgo.SeedBrokers(a.Bootstrap), kgo.DialTLSConfig(config), kgo.RecordRetries(1), kgo.RequestRetries(1)}
	if login := a.login(); login != nil {
		options = append(options, kgo.SASL(login))
	}
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: a.Topic, Value: []byte("v")}).FirstErr(); err != nil {
		return err.Error()
	}
	return "written"
}

// Writes a record for each attempt of the list that is the argument, all at once; prints what came of them, as a list.
func runSecured(args []string) {
	var attempts []attempt
	must(json.Unmarshal([]byte(args[0]), &attempts))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	outcomes := make([]string, len(attempts))
	var all sync.WaitGroup
	for i := range attempts {
		all.Go(func() { outcomes[i] = attempts[i].outcome(ctx) })
	}
	all.Wait()
	text, err := json.Marshal(outcomes)
	must(err)
	fmt.Println(string(text))
}
