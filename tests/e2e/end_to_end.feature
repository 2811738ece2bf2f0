Feature: End to end
  A user hands in work and goes home. What is said here holds with everything in one process,
  with every message delayed, repeated and reordered, and on a real broker and API server.

  Scenario: A gang of eight runs together and completes
    Given a queue "research"
    And a job "gang" in queue "research" with 8 pods of 1 CPU that all must run together
    When "gang" is submitted
    Then "gang" comes to Completed
    And all 8 pods of "gang" ran at the same time
    And "gang" was never retried

  Scenario: A gang that does not fit waits whole, and says why
    Given a job "wide" in queue "default" with 64 pods of 1 CPU that all must run together
    When "wide" is submitted
    Then no pod of "wide" gets a node
    And the explanation of "wide" names "cpu"
    When "wide" is deleted
    Then nothing of "wide" is left

  Scenario: A gang that insists on one rack gets one, or waits
    Given racks of two nodes each
    And a job "near" in queue "default" with 6 pods of 1 CPU that all must run in one rack
    And a job "wider" in queue "default" with 10 pods of 1 CPU that all must run in one rack
    When "near" is submitted
    Then "near" comes to Completed
    And all pods of "near" ran in one rack
    When "wider" is submitted
    Then no pod of "wider" gets a node
    And the explanation of "wider" names "rack-"
    When "wider" is deleted
    Then nothing of "wider" is left

  Scenario: Two queues work side by side
    Given a queue "left"
    And a queue "right"
    And a job "one" in queue "left" with 2 pods of 1 CPU that all must run together
    And a job "two" in queue "right" with 2 pods of 1 CPU that all must run together
    When "one" is submitted
    And "two" is submitted
    Then "one" comes to Completed
    And "two" comes to Completed

  Scenario: A job whose pods fail is Failed, with its counts kept
    Given a job "broken" in queue "default" with 2 pods of 1 CPU that exit with 3
    When "broken" is submitted
    Then "broken" comes to Failed
    And "broken" counts 2 failed pods

  Scenario: A job is deleted while it runs
    Given a job "long" in queue "default" with 3 pods of 1 CPU that run for 600 seconds
    When "long" is submitted
    Then "long" comes to Running
    When "long" is deleted
    Then nothing of "long" is left
    And the room is free for 8 pods of 1 CPU

  Scenario: A queue and its job stand in one manifest
    Given a manifest with a queue "fresh" and a job "first" in it
    When the manifest is applied
    Then "first" comes to Completed
    When the manifest is applied again
    Then nothing changed

  Scenario: What is wrong is refused at once and whole
    Given a job "wrong" in queue "nowhere" with 2 pods of 1 CPU that all must run together
    And "wrong" also needs 9 pods at least
    When "wrong" is submitted
    Then it is refused for "spec.queue" and "spec.minAvailable"
    And nothing of "wrong" is left

  Scenario: A job's way can be read afterwards
    Given a job "told" in queue "default" with 2 pods of 1 CPU that all must run together
    When "told" is submitted
    Then "told" comes to Completed
    And the way of "told" was Pending, Running, Completed
