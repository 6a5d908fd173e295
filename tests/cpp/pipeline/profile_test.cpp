// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/profile.h"

#include <limits>

#include "harness/catch.h"
#include "pipeline/profiles.h"

namespace aikido::pipeline {
namespace {

const std::string kFigures =
    "forward_compute_time=1.5, backward_compute_time=2, activation_size=30.000, "
    "parameter_size=4";

std::string line(const std::string& id) {
  return id + " -- Linear(2, 3) -- " + kFigures;
}

Profile profile_in(const std::string& text) {
  auto profile = parse_profile(text);
  INFO(profile.status().message());
  REQUIRE(profile.is_ok());
  return *profile;
}

std::string failure_of(const std::string& text) {
  const auto profile = parse_profile(text);
  REQUIRE_FALSE(profile.is_ok());
  CHECK(profile.status().code() == Code::kInvalidArgument);
  return profile.status().message();
}

TEST_CASE("layers and edges are read from text") {
  const Profile profile = profile_in("\n" + line("b") + " -- stage_id=3\n" + line("a") +
                                     "\r\n\tb -- a\n\tb -- a\n  ");
  REQUIRE(profile.layers.size() == 2);
  const Layer& layer = profile.layers[0];
  CHECK(layer.id == "b");
  CHECK(layer.description == "Linear(2, 3)");
  CHECK(layer.forward_ms == 1.5);
  CHECK(layer.backward_ms == 2);
  CHECK(layer.activation_bytes == 30);
  CHECK(layer.parameter_bytes == 4);
  CHECK(layer.stage == 3);
  CHECK(profile.layers[1].stage == -1);
  CHECK(profile.edges == std::vector<Edge>{{0, 1}});
}

TEST_CASE("a list of activations is their sum") {
  const Profile profile = profile_in(
      "a -- LSTM -- x -- forward_compute_time=0, backward_compute_time=0, "
      "activation_size=[62.5; 13; 1e3], parameter_size=0");
  CHECK(profile.layers[0].activation_bytes == 1075.5);
  CHECK(profile.layers[0].description == "LSTM -- x");
}

TEST_CASE("a written schedule is read back, to the bit") {
  std::mt19937 dice(5);
  for (const char* name : {"alexnet", "resnet50", "gnmt_large"}) {
    Profile profile = testing::published(name);
    profile.layers[1].stage = 2;
    for (Layer& layer : profile.layers)
      layer.forward_ms += static_cast<double>(dice()) / 1e7;
    const Profile again = profile_in(to_text(profile));
    CHECK(again.edges == profile.edges);
    REQUIRE(again.layers.size() == profile.layers.size());
    for (size_t i = 0; i < profile.layers.size(); ++i) {
      const Layer &a = again.layers[i], &b = profile.layers[i];
      CHECK(a.id == b.id);
      CHECK(a.description == b.description);
      CHECK(a.forward_ms == b.forward_ms);
      CHECK(a.backward_ms == b.backward_ms);
      CHECK(a.activation_bytes == b.activation_bytes);
      CHECK(a.parameter_bytes == b.parameter_bytes);
      CHECK(a.stage == b.stage);
    }
  }
}

TEST_CASE("text that is no profile is refused with its line") {
  const auto with = [](const std::string& figures) { return "a -- L -- " + figures; };
  const std::pair<std::string, std::string> rows[] = {
      {"", "the profile is empty; it needs one layer at least"},
      {line("a") + "\nb -- Linear\n",
       "line 2: \"b -- Linear\" is no layer; one is <id> -- <description> -- "
       "forward_compute_time=<ms>, backward_compute_time=<ms>, "
       "activation_size=<bytes>, parameter_size=<bytes>"},
      {"a -- " + kFigures,
       "line 1: \"a -- forward_compute_time=1.5, backward_compute_time=2, acti...\" is "
       "no layer; one is <id> -- <description> -- forward_compute_time=<ms>, "
       "backward_compute_time=<ms>, activation_size=<bytes>, parameter_size=<bytes>"},
      {with("forward_compute_time=1, backward_time=2"),
       "line 1: layer \"a\" has \"backward_time=2\" where "
       "backward_compute_time=<number> is expected"},
      {with("forward_compute_time=1"),
       "line 1: layer \"a\" has \"\" where backward_compute_time=<number> is expected"},
      {with("forward_compute_time=1s, backward_compute_time=2"),
       "line 1: layer \"a\": forward_compute_time is \"1s\", which is no number"},
      {with("forward_compute_time=1, backward_compute_time=2, activation_size=[1; x], "
            "parameter_size=0"),
       "line 1: layer \"a\": activation_size is \"[1; x]\", which is no number"},
      {with(kFigures + ", more=1"),
       "line 1: layer \"a\" has \"more=1\" after parameter_size"},
      {line("a") + " -- stage=1",
       "line 1: layer \"a\" ends with \"stage=1\"; only stage_id=<number> may be "
       "there"},
      {line("a") + " -- stage_id=-1",
       "line 1: layer \"a\" ends with \"stage_id=-1\"; only stage_id=<number> may be "
       "there"},
      {with("forward_compute_time=-1, backward_compute_time=2, activation_size=0, "
            "parameter_size=0"),
       "line 1: the forward time of layer \"a\" is -1; it takes a finite number from 0 "
       "up"},
      {with("forward_compute_time=1, backward_compute_time=nan, activation_size=0, "
            "parameter_size=0"),
       "line 1: the backward time of layer \"a\" is nan; it takes a finite number from "
       "0 up"},
      {line("a") + "\n\n" + line("a"),
       "line 3: the id \"a\" is there already, in line 1"},
      {line("a") + "\n\ta -> b",
       "line 2: \"a -> b\" is no edge; one is <tab><id> -- <id>"},
      {line("a") + "\n\ta -- b",
       "line 2: the edge from \"a\" to \"b\" needs a layer \"b\", and there is none"},
      {line("a") + "\n\ta -- a", "layer \"a\" needs itself"},
      {line("a") + "\n" + line("b") + "\n" + line("c") + "\n" + line("d") +
           "\n\ta -- b\n\tb -- c\n\tc -- b\n\tc -- d",
       "the layers need each other in a cycle: \"b\" -> \"c\" -> \"b\""},
  };
  for (const auto& [text, sentence] : rows) CHECK(failure_of(text) == sentence);
}

TEST_CASE("a profile that was made by hand is checked the same way") {
  const Layer a{"a", "", 1, 1, 1, 1, -1};
  const auto sentence = [](const Profile& profile) {
    return validate(profile).message();
  };
  CHECK(validate({{a}, {}}).is_ok());
  CHECK(sentence({{a, a}, {}}) ==
        "the id \"a\" is there twice; each layer needs one of its own");
  CHECK(sentence({{a}, {{0, 1}}}) ==
        "an edge goes from layer 0 to 1 but there are 1 layers, from 0 on");
  const Profile made = *make_profile({a, {"b", "", 0, 0, 0, 0, -1}}, {{"b", "a"}});
  CHECK(made.edges == std::vector<Edge>{{1, 0}});
  CHECK(make_profile({a}, {{"c", "a"}}).status().message() ==
        "the edge from \"c\" to \"a\" needs a layer \"c\", and there is none");
  CHECK(make_profile({a, a}, {}).status().message().find("the id \"a\" is there") == 0);
  Layer bad = a;
  bad.id = "";
  CHECK(sentence({{bad}, {}}) == "layer 1 of the profile has an empty id");
  bad.id = "x -- y";
  CHECK(sentence({{bad}, {}}) ==
        "the id \"x -- y\" has a line break, spaces around it or \" -- \" in it");
  bad.id = "x ";
  CHECK(sentence({{bad}, {}}).find("the id \"x \" has") == 0);
  bad = a;
  bad.description = "two\nlines";
  CHECK(sentence({{bad}, {}}) == "the description of layer \"a\" has a line break");
  bad = a;
  bad.parameter_bytes = std::numeric_limits<double>::infinity();
  CHECK(sentence({{bad}, {}}) ==
        "the parameter size of layer \"a\" is inf; it takes a finite number from 0 up");
}

}  // namespace
}  // namespace aikido::pipeline
