"""Thesaurus of the search: words that mean the same, and words that stand for a topic.

General English and the trade's abbreviations, written for this project; words that no tool has do no harm.
"""

import re

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

_TOPICS = """
    3d: model render print
    account: profile sign register signup
    ad: campaign click google facebook
    address: street city zip postal
    age: old born birthday
    ai model: gpt llm chatbot machine neural
    air quality: pollution smog pollen aqi
    allergy: allergen gluten
    analyze: examine inspect investigate study understand
    anime manga: japanese cartoon
    api documentation: docs sdk endpoint reference
    appointment: doctor dentist haircut salon visit
    archive: compress zip
    art: painting drawing artwork sketch gallery museum illustration
    assign: give owner responsible delegate
    astronomy space: planet star galaxy nasa mars moon telescope rocket satellite
    attachment: attach attached
    auction: bid
    audio: wav podcast sound microphone recording mp3 voice
    availability: free open vacancy slot
    baby: pregnancy infant newborn
    backup: restore snapshot copy save
    balance: account much
    bank account: deposit withdraw balance savings
    beach: sea ocean surf wave swim tide
    beauty: makeup skin hair cosmetic
    biology: gene dna protein cell species genome
    bmi: height weight body
    book: novel author writer reading library literature
    book reserve: table seat ticket room
    branch: merge checkout feature
    bucket storage: s3 blob object file
    cache: redis memcached
    calendar event: schedule meeting appointment reminder invite availability free busy
    cancel: undo revert
    candidate: applicant hire recruit interview
    caption post: instagram facebook
    car rental: rent vehicle
    car vehicle: drive driving tire engine mechanic auto sedan mileage
    charging station: ev electric tesla
    charity: donate donation nonprofit
    chart: visualize plot graph diagram
    chat: talk conversation speak converse
    chemistry: molecule compound element reaction atom chemical
    classify: category type sort
    click: press button tap
    cluster pod: kubernetes k8s node deployment
    code: python javascript program bug debug function script programming developer compile algorithm
    color: red blue green palette hue rgb
    comic: superhero marvel dc
    comment: reply write discuss remark feedback
    company: firm startup business ceo founder
    compare: better difference versus
    concert: gig tour band
    console: javascript error warning
    contact: phone address friend colleague
    container: docker image
    content text: inside lines words
    contract: agreement sign signature
    convert: turn transform change
    coordinates: latitude longitude lat lng gps
    copy duplicate: clone
    cost price: month billing bill charge subscription
    count: many number
    coupon: discount promo voucher sale bargain
    crawl: scrape website
    create: new start begin setup
    credit score: rating
    crime: police theft murder
    cryptocurrency: bitcoin ethereum btc eth nft wallet blockchain coin defi
    currency: euro dollar yen pound usd eur convert
    customer: client buyer user
    dashboard: grafana panel chart
    data: dataset csv statistics analyze
    database: sql query table postgres mysql row
    date: birthday today tomorrow yesterday weekend holiday
    definition word: mean meaning synonym vocabulary
    delete: rid wipe purge discard forget
    delivery: deliver courier parcel
    deploy: ship production release publish live
    detect: recognize identify spot
    device: phone mobile tablet emulate simulate
    diagnostics: lint compile error warning
    diagram: flowchart mindmap architecture
    dialog: popup alert confirm prompt modal
    diff change: difference modified changed
    directions map: route navigate drive walk distance street
    directory: folder tree structure
    distance: far long kilometer mile
    dns: record nameserver mx
    document: pdf word contract report paper
    domain: dns whois website hostname name available buy
    draft: later unsent
    earthquake: seismic quake magnitude
    education course: student teacher school university college class lesson tutor learn learning
        homework curriculum exam study
    elevation: altitude height
    email: inbox mail gmail outlook newsletter unread
    emergency: earthquake flood fire disaster
    emoji: smiley emoticon
    employee: staff hr worker payroll
    encrypt: secret cipher decrypt secure
    energy: solar electricity power carbon emission
    entity relation: remember person fact knowledge
    event: concert festival ticket conference party meetup
    event meeting: lunch dinner appointment schedule invite attend
    execute sql: query rows delete insert update
    expense: spend spending reimbursement cost
    export: pdf csv download
    extract: pull parse get
    fashion clothing: outfit wear dress shoe shirt style jewelry wardrobe
    feature flag: toggle rollout
    fetch url: download http link curl
    file: folder path save open
    filter: matching exclude
    finance: money saving budget wealth retirement economy
    fish: fishing
    fitness workout: exercise gym muscle cardio yoga jogging running squat pushup training
    flight: fly flying flew airfare layover boarding
    follower: follow fans
    font: typography
    form field: fill input login type
    free busy: available availability
    fuel gas: petrol station
    function: method procedure serverless lambda edge
    gambling bet odds: betting wager bookmaker
    game: gamer puzzle quiz trivia riddle crossword chess multiplayer console
    gas fee: ethereum gwei
    genealogy: ancestor family
    generate: make build produce write
    get: give check look
    gif: animated animation
    gift: birthday anniversary wedding christmas valentine
    grammar text: spelling proofread rewrite paraphrase essay
    grocery: supermarket milk vegetable fruit
    hash: md5 sha checksum digest
    hashtag: tag trend
    health medical: sick symptom pain headache fever flu cough hospital patient treatment diagnose
        diagnosis nurse clinic
    hiking trail: hike mountain outdoor walk camping
    history: past previous earlier ago recent
    history historical: war century ancient king empire
    home: smart light thermostat furniture decor room
    horoscope astrology: zodiac tarot birth sign fortune
    hotel: stay hostel resort airbnb motel lodge overnight
    hover: mouse cursor pointer
    http status: header response request
    icon: svg logo
    image: png jpg jpeg svg webp logo icon wallpaper poster screenshot portrait selfie avatar sketch
    import: migrate load csv
    incident: outage pager oncall
    install: setup package
    instance vm: ec2 compute server cloud
    insurance: policy premium claim coverage
    interest: compound rate principal annual savings
    inventory: stock warehouse supply quantity
    invoice: bill payment due receipt
    ip: geolocation
    ip address: network
    issue: bug ticket defect jira problem story epic backlog
    job: career hire hiring salary recruiter vacancy employment interview resume
    joke: funny laugh humor pun hilarious
    json: format parse validate
    key: token secret credential
    kids: child children toddler baby son daughter parent
    label: tag mark category categorize
    language translate: spanish french german chinese japanese english italian korean
    lead deal: sales pipeline crm opportunity prospect
    leave: vacation sick pto absence holiday
    legal law: lawyer attorney lawsuit court contract sue
    license: copyright legal
    list: every
    loan: mortgage borrow lender debt
    location nearby: near nearest closest around neighborhood downtown
    log: error crash exception stacktrace failing fails backend
    lottery: win jackpot lucky number
    lyrics: song words sing
    marketing: campaign audience brand seo advertise advertising promote promotion customer
    math calculate: equation algebra solve sum multiply integral derivative geometry formula percent
        percentage
    matrix vector: linear algebra
    meditation: relax stress anxiety mindfulness calm
    meme: funny gif sticker
    memory heap: leak
    message: text chat slack whatsapp telegram reply
    metadata info: size big modified permission
    metric: cpu memory usage load
    monitor: watch alert changes
    moon phase: lunar
    move rename: name path
    movie: watch netflix actor actress director trailer series show cinema
    music song: listen playlist lyric singer band artist album melody spotify guitar
    name: called title baby generate nickname
    navigate: go open visit
    network request: api call http response
    news: headline latest breaking journalist happening politics election
    nft: opensea collection token
    note: memo jot
    notification alert: notify inform warn
    number: integer digit prime even odd
    nutrition: calorie diet vitamin protein healthy carb
    observation: remember fact
    ocean: tide wave
    order: delivery purchase bought
    package library: npm pip dependency module install
    parking: park garage
    password: login credential
    patent: invention inventor trademark
    pattern: grep regex match
    payment: pay checkout card stripe paypal
    pdf: document page
    performance: slow fast speed latency lag
    permission: share access allow
    pet animal: dog cat puppy kitten vet
    physics: velocity acceleration force gravity energy momentum
    pipeline workflow: ci build job action
    plant: garden gardening flower tree seed
    playlist: songs mix tracks
    podcast: episode listen show
    politics law: government congress senate senator legislation
    population country: nation census capital
    post: publish tweet share social
    postal code: zip postcode
    presentation slide: powerpoint deck talk
    price: expensive cheap cheaper cheapest afford affordable budget worth pay
    prime factor: divisible divisor gcd
    prompt: chatgpt midjourney
    pronunciation: pronounce accent
    property: house apartment rent landlord realtor tenant bedroom mortgage buying
    pull request: pr review merge
    qr: code barcode scan
    qr barcode: scan
    query: rows filter select
    queue: sqs kafka message topic
    quote: inspiration inspirational motivate motivation wisdom
    random: pick roll flip choose
    recipe food: cook cooking bake baking ingredient dessert meal chef kitchen soup cake
    recommend: suggest suggestion idea advice best good
    reference usage: used calls caller
    refund: return money back
    regex: pattern expression match
    register: enroll signup join apply
    relationship: dating girlfriend boyfriend love partner
    release: version changelog ship
    religion: bible quran prayer church
    reminder: remind forget
    rename refactor: everywhere
    repository: github git gitlab commit branch fork
    research paper: scientific scholar academic journal article arxiv publication citation
    response: answer submission reply
    restaurant: hungry lunch dinner breakfast brunch cuisine sushi pizza vegan cafe takeout
    restriction permission: private public visible see allow forbid
    resume: cv cover
    review: opinion rating feedback complaint
    ride taxi: uber cab lyft driver
    roleplay character: pretend persona
    schedule cron: every daily weekly periodically recurring
    schema migration: alter column table
    scrape: extract website webpage
    screenshot: picture capture snapshot
    screenshot image: picture look
    search: look looking find google
    search web: internet google online
    security: hack password vulnerability breach phishing malware virus attack exploit
    select option: choose pick dropdown
    send: reply respond forward
    sentiment: emotion feeling opinion positive negative mood
    seo: keyword ranking backlink google rank traffic
    server: instance machine vm host
    share permission: access invite collaborator
    sheet cell: row column budget excel
    shell command: terminal bash run script cli
    shipping package: parcel delivery track tracking courier
    shopping product: buy purchase shop sneaker laptop phone amazon ebay deal store brand
    signature: sign esign
    ski: snow slope mountain resort
    sleep: insomnia nap bedtime
    slide: talk deck pitch
    social: instagram facebook twitter tiktok linkedin follower hashtag influencer
    sort: order rank
    sport: football soccer basketball baseball tennis nba nfl team league player score match champion
        coach
    spreadsheet: csv excel cell row column formula
    sprint: iteration scrum agile
    ssl certificate: https tls expire
    statistics: mean average median correlation regression distribution probability
    status: progress done finished ready running
    status transition: mark done close finish resolve complete reopen
    stock: invest shares nasdaq dividend portfolio wall
    style format: bold italic heading font color layout
    subscription: subscribe plan renew newsletter billing recurring
    subtitle: caption
    sum add: plus total
    summarize: summary brief overview tldr gist
    sunrise sunset: dawn dusk daylight
    supplier: vendor
    survey form: questionnaire answer response poll
    symbol: class method function variable
    task: todo remember chore remind reminder deadline
    tax: irs deduction income
    temperature: hot cold warm chilly degree celsius fahrenheit freezing heatwave
    test: verify unit
    theater: play musical broadway stage
    therapy: depression mental anxiety stress
    thumbnail: cover youtube
    ticket: concert show match seat
    time: clock hour minute oclock timezone
    trace: profile slow performance
    trademark: brand
    traffic route: commute drive highway congestion
    transaction: purchase spending transfer history
    transcribe: subtitle caption speech recording
    transfer: send money wire remit
    transit: bus train subway metro tram
    translate: say meaning
    travel trip: holiday getaway sightseeing itinerary visit abroad backpacking destination honeymoon
    trend: popular trending viral hot
    triangle circle area: radius perimeter side hypotenuse volume circumference
    trigger webhook: automatically event
    tv show: series episode season netflix stream
    type: enter typing keyboard
    unit convert: kilogram pound meter feet inch mile liter gallon celsius
    update: rename replace adjust correct fix
    upload: attach
    uptime: outage available ping
    url shorten: link short
    user: member person profile
    uuid: unique id identifier
    version: release old previous latest newest
    video: mp4 mov clip footage youtube vlog film recording animation
    view: look open show see
    visa immigration: passport embassy citizenship
    voice speech: speak read aloud pronounce
    weather forecast: rain rainy snow snowy storm sunny cloudy umbrella humidity humid wind windy
        thunderstorm hurricane tornado drizzle jacket
    website: homepage landing html webpage domain site
    wedding: bride marriage
    wiki page: confluence article knowledge handbook
    wine drink: beer cocktail alcohol coffee tea bar
    worklog time: log hour spent effort timesheet
    writing: essay article blog story poem letter
"""

TOPICS = tuple(
    (tuple(heads.split()), tuple(members.split()))
    for heads, _, members in (
        line.partition(":") for line in re.sub(r"\n {8}", " ", _TOPICS).strip().splitlines()
    )
)
"""Words of a topic, and the words that stand for it: who asks for an umbrella asks for the weather.

Not the other way round, as synonyms are: a search for the weather is not one for umbrellas.
"""
