"""Thesaurus of the search: words that mean the same (`topics` has words that stand for others).

General English and the trade's abbreviations, written for this project; words that no tool has do no harm.
"""

_FAMILIES = """
    account: acct accts
    address: addr
    administrator: admin
    advertisement: ad ads
    analyze: analyse analyses analysis analytic analytical analytics
    apply: application
    argument: arg args
    authenticate: auth authentication authorization authorize
    average: avg
    calculate: calc
    classify: classification classifier
    compare: comparison
    compress: compression
    config: cfg configuration configure
    convert: conversion converter
    current: currently now
    database: databases db dbs
    decide: decision
    delete: del deletion
    dependency: dep deps
    derive: derivative
    describe: description
    development: dev
    directory: dir dirs directories folder folders
    divide: division
    document: doc docs docx
    environment: env
    execute: exec execution
    expand: expansion
    extend: extension
    finance: financial
    identifier: id ids
    identify: identification
    image: img imgs
    information: info
    javascript: js
    kubernetes: k8s
    mathematics: math maths
    maximum: max
    message: msg msgs
    minimum: min
    minute: mins
    modify: modification
    multiply: multiplication
    notify: notification notifications
    number: num nums
    optimize: optimization optimise
    organization: org organisation orgs
    organize: organise
    parameter: param params
    password: passwd pwd
    permit: permission permissions
    photo: photograph photography pic pics
    prescribe: prescription
    presentation: powerpoint ppt pptx presentations
    process: proc procs
    production: prod
    quantity: qty
    reference: ref refs
    repository: repo repos
    specification: spec specs
    spreadsheet: xls xlsx
    statistics: statistic statistical stats
    submit: submission
    subscribe: subscriber subscription subscriptions
    summarize: summaries summarise summary
    telephone: phone
    television: tv
    temperature: temp
    transcribe: transcript transcription
    translate: translation translator
    transaction: tx txn
    transmit: transmission
    typescript: ts
    verify: verification
    version: ver
    visualize: visualise visualization
"""

FAMILIES = {
    member: head.strip()
    for head, _, members in (line.partition(":") for line in _FAMILIES.strip().splitlines())
    for member in members.split()
}
"""Forms of one word that a stemmer does not join: each becomes the head of its family."""

RELATED = tuple(
    tuple(line.split())
    for line in """
        create add make new insert generate
        delete remove erase drop clear
        update edit modify change set
        get retrieve fetch read obtain
        find search lookup query locate discover
        list show display view enumerate
        send post deliver dispatch
        calculate compute determine evaluate
        run execute launch start invoke
        stop cancel abort terminate kill
        download save export
        save write store
        upload import load
        schedule plan book reserve
        buy purchase order shop
        check verify validate confirm
        compare versus difference
        convert transform translate
        estimate predict forecast
        recommend suggest advise
        deploy release publish
        monitor watch track
        crawl scrape extract
        login sign authenticate
        summarize abstract digest
        memory remember recall
        price cost quote fee rate
        message chat sms text
        email mail inbox
        meeting event appointment calendar
        task todo issue ticket
        user account member profile
        person people contact
        customer client
        company business organization firm
        employee staff worker
        image picture photo
        image generate draw
        video movie film cinema
        video youtube
        music song audio track
        speech voice audio
        file document
        repository project codebase
        code source program script
        bug issue error defect
        commit change revision
        pull merge
        database table sql
        spreadsheet sheet excel
        presentation slide deck
        bitcoin btc
        ethereum eth
        dollar usd
        row record entry
        column field
        web website site internet online
        page url link
        browser chrome
        news article headline
        blog post article
        weather forecast temperature climate rain
        map location place address geocode
        location city region area
        route direction navigation
        distance far
        flight airline airport plane
        hotel accommodation lodging room
        trip travel vacation tour journey
        restaurant dining eat
        food meal dish recipe
        car vehicle automobile
        stock share equity ticker
        crypto cryptocurrency bitcoin ethereum blockchain token
        currency exchange money
        payment pay transaction charge
        invoice bill receipt
        loan mortgage credit
        invest portfolio fund
        tax vat
        bank finance
        job career employment position
        resume cv
        course class lesson learn training
        study learn education
        student pupil
        doctor physician medical
        health medical clinical
        disease illness condition
        drug medicine medication
        law legal
        house home property apartment
        rent lease
        game play
        sport match team
        book read novel
        quote saying
        word dictionary definition
        language translate
        mathematics equation calculate
        chart graph plot diagram
        statistics metric
        log trace
        server host machine
        container docker
        cluster kubernetes
        alert notification
        permission access role
        password credential secret
        key token
        time clock timezone
        date day
        note memo
        product item goods
        discount coupon deal
        gift present
        review rating feedback
        tweet twitter
        design draw
        random dice
    """.strip().splitlines()
)
"""Synonyms among tools. A search tries them too, with less weight."""
